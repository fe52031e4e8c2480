-- A wait of a run that has ended is over without an outcome.
--@include cancel_child step
local function withdraw(run, name, target)
  redis.call('HDEL', waits_key(run.id), name)
  redis.call('SREM', awaiters_key(target), awaiter(run.id, name))
  local step = read_header(redis.call('HGET', steps_key(run.id), 's:' .. name))
  step.status, step.finishedAt = 'withdrawn', string.format('%.0f', now)
  redis.call('HSET', steps_key(run.id), 's:' .. name, write_header(step))
  if redis.call('HGET', run_key(target), 'parentRunId') == run.id then cancel_child(target) end
end
