-- Gives an open wait of a run its outcome, for ever. A run that has no lease goes on; one that has hears of it when it
-- asks. A run that is gone or has ended is left alone.
--@include index lane now run step
local function resolve(run, name, outcome)
  if not run or ended(run) or redis.call('HDEL', waits_key(run.id), name) == 0 then return end
  local step = read_header(redis.call('HGET', steps_key(run.id), 's:' .. name))
  step.status, step.final, step.attempt, step.meta = outcome.status, '1', run.attempt, outcome.meta
  step.size, step.finishedAt = tostring(#outcome.value), string.format('%.0f', now)
  redis.call('HSET', steps_key(run.id), 's:' .. name, write_header(step), 'o:' .. name, outcome.value)
  put(run, 'stepsDone', (tonumber(run.stepsDone) or 0) + 1)
  put(run, 'stepsBytes', (tonumber(run.stepsBytes) or 0) + #outcome.value)
  local open = (tonumber(run.openWaits) or 1) - 1
  put(run, 'openWaits', open > 0 and open or nil)
  put(run, 'losses', nil)
  put(run, 'undelivered', nil)
  if run.status == 'waiting' then
    -- Without a worker for its workflow it has a grace from now on, not from its start.
    if not run.typed then put(run, 'queuedAt', now) end
    set_status(run, 'queued')
    lane_push(run)
  end
  save(run)
end
