-- Repairs the open waits of a run that stands aside, and what has to lead to them. Says what was missing, or nil. A run
-- that waits for nothing runs again and finds out. Of thousands of waits each pass looks at some.
--@include index lane mend_wait
local function mend_waits(run)
  local count, repaired = redis.call('HLEN', waits_key(run.id)), nil
  if tonumber(run.openWaits) ~= count then
    put(run, 'openWaits', count > 0 and count or nil)
    repaired = 'waits'
  end
  local waits = count > 0 and redis.call('HRANDFIELD', waits_key(run.id), 100, 'WITHVALUES') or {}
  for i = 1, #waits, 2 do
    repaired = mend_wait(run, waits[i], read_wait(waits[i + 1])) or repaired
  end
  if count > 0 then return repaired end
  put(run, 'placedAt', now)
  set_status(run, 'queued')
  lane_push(run)
  return 'wait'
end
