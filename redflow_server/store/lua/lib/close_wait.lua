-- Takes an open wait out of everywhere it stands. What became of it the caller writes.
--@include step waits
local function close_wait(run, name, wait)
  redis.call('HDEL', waits_key(run.id), name)
  if wait.deadline ~= '' then redis.call('ZREM', TIMERS, awaiter(run.id, name)) end
  if wait.kind == 'event' then redis.call('ZREM', event_waits_key(wait.target), awaiter(run.id, name)) end
  if wait.kind == 'child' then redis.call('SREM', awaiters_key(wait.target), awaiter(run.id, name)) end
end
