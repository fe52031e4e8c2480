-- A wait stands at its deadline, on its channel, and is known to the run that it is for. Says what was missing, or nil.
--@include mend_child_wait
local function mend_wait(run, name, wait)
  local member, repaired = awaiter(run.id, name), nil
  if wait.deadline ~= '' and not redis.call('ZSCORE', TIMERS, member) then
    due_at(TIMERS, 'timers', tonumber(wait.deadline), member)
    repaired = 'timer'
  end
  if wait.kind == 'event' and not redis.call('ZSCORE', event_waits_key(wait.target), member) then
    redis.call('ZADD', event_waits_key(wait.target), redis.call('INCR', EVENT_SEQ), member)
    repaired = 'event wait'
  end
  return wait.kind == 'child' and mend_child_wait(run, name, wait.target) or repaired
end
