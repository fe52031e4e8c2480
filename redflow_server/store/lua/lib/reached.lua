-- The runs that waits lead to from one run, followed one way; nil when there are too many to say.
local MAX_FOLLOWED = 1000
local function reached(from, count, key_of, next_of)
  local seen, runs, followed = {[from] = true}, {from}, 0
  local function follow(id)
    if not seen[id] then seen[id], runs[#runs + 1] = true, id end
  end
  for _, at in ipairs(runs) do
    followed = followed + redis.call(count, key_of(at))
    if followed > MAX_FOLLOWED then return nil end
    next_of(at, follow)
  end
  return seen
end
