-- Whether runs would wait for each other in a circle.
--@include reached waits
local function targets_of(id, follow)
  for _, entry in ipairs(redis.call('HVALS', waits_key(id))) do
    local wait = read_wait(entry)
    if wait.kind == 'child' then follow(wait.target) end
  end
end

local function awaiters_of(id, follow)
  for _, member in ipairs(redis.call('SMEMBERS', awaiters_key(id))) do follow((awaited_by(member))) end
end

-- Whether a run is awaited, over however many others, by the one that it would wait for. Mostly nobody awaits it. Where
-- there are too many waits to follow either way that is unclear: it fails, rather than that both wait for ever.
local function circle_with(run, child)
  if run.id == child.id then return 'await_cycle' end
  if not run.awaited or not child.openWaits then return nil end
  -- Followed once for all waits of a suspension.
  if run.above == nil then run.above = reached(run.id, 'SCARD', awaiters_key, awaiters_of) or false end
  if run.above then return run.above[child.id] and 'await_cycle' end
  local below = reached(child.id, 'HLEN', waits_key, targets_of)
  if not below then return 'unclear' end
  return below[run.id] and 'await_cycle'
end
