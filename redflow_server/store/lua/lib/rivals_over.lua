-- Of the waits against which a step has run, those that have an outcome.
--@include ended_waits
local function rivals_over(run, names)
  local waits = {}
  for _, name in ipairs(names) do
    local header = redis.call('HGET', steps_key(run.id), 's:' .. name)
    local status = header and read_header(header).status
    if status == 'succeeded' or status == 'failed' then waits[#waits + 1] = {name = name} end
  end
  return ended_waits(run, waits)
end
