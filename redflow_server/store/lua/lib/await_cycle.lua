-- Whether runs would wait for each other in a circle.
--@include leads waits
local function targets_of(id, follow)
  for _, entry in ipairs(redis.call('HVALS', waits_key(id))) do follow(read_wait(entry).target) end
end

local function awaiters_of(id, follow)
  for _, member in ipairs(redis.call('SMEMBERS', awaiters_key(id))) do follow((awaited_by(member))) end
end

-- Whether a run is awaited, over however many others, by the one that it would wait for. Mostly nobody awaits it. Where
-- there are too many waits to follow either way it is taken to be: it fails, rather than that both wait for ever.
local function is_awaited_by(run, child)
  if run.id == child.id then return true end
  if not run.awaited or not child.openWaits then return false end
  local found = leads(run.id, child.id, 'SCARD', awaiters_key, awaiters_of)
  if found == nil then found = leads(child.id, run.id, 'HLEN', waits_key, targets_of) end
  return found ~= false
end
