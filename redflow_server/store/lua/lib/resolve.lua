-- Gives an open wait of a run its outcome, for ever, and withdraws those that have lost the race against it. A run that
-- has no lease goes on; the gateway of one that has is told. A run that is gone or has ended is left alone.
--@include index lane now progress run tell_holder withdraw
local function resolve(run, name, outcome)
  local entry = run and not ended(run) and redis.call('HGET', waits_key(run.id), name)
  if not entry then return end
  local wait = read_wait(entry)
  close_wait(run, name, wait)
  local step = read_header(redis.call('HGET', steps_key(run.id), 's:' .. name))
  step.status, step.final, step.attempt, step.meta = outcome.status, '1', run.attempt, outcome.meta
  step.size, step.finishedAt = tostring(#outcome.value), string.format('%.0f', now)
  step.resolved, step.target = number_resolution(run), outcome.target or step.target
  local header = write_header(step)
  redis.call('HSET', steps_key(run.id), 's:' .. name, header, 'o:' .. name, outcome.value)
  put(run, 'stepsDone', (tonumber(run.stepsDone) or 0) + 1)
  put(run, 'stepsBytes', (tonumber(run.stepsBytes) or 0) + #outcome.value)
  local open = (tonumber(run.openWaits) or 1) - 1
  if wait.group ~= '' then open = open - withdraw_rivals(run, wait.group) end
  put(run, 'openWaits', open > 0 and open or nil)
  local solo = run.solo
  progress(run)
  if run.status == 'queued' then put(run, 'solo', solo) end  -- by which it stands in its lane
  if run.leaseToken then tell_holder(run, name, header, outcome.value) end
  if run.status == 'waiting' then
    put(run, 'placedAt', now)
    set_status(run, 'queued')
    lane_push(run)
  end
  save(run)
end
