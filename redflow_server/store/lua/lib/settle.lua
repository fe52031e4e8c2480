-- Decides where a run goes when its lease ends: canceled if that was asked for, failed if its time is up, else where
-- the script wants it, which is a lane, a time, its open waits or an end. In phase failing its time was up before.
--@include effects failing failures schedule
local function settled_status(run, wanted)
  if given(run.cancelRequestedAt) then return 'canceled' end
  local late = run.timeoutRequestedAt or (run.runDeadline and now >= tonumber(run.runDeadline))
  if late and not run.phase then return 'failed', FAILURES.run_timeout end
  return wanted
end

local function settle(run, wanted, at)
  local status, failure = settled_status(run, wanted)
  if failure then redis.call('HSET', data_key(run.id), 'errorJson', failure) end
  -- Its failure handler comes first, as another delivery.
  if status == 'failed' and begin_failing(run) then status = 'queued' end
  if run.leaseToken then hand_in(run, status) end
  if status ~= 'queued' and status ~= 'scheduled' and status ~= 'waiting' then
    finish(run, status)
    return status
  end
  set_status(run, status)
  -- Without a worker for its workflow it has a grace from now on, not from its start.
  if status ~= 'waiting' then put(run, 'placedAt', now) end
  if status ~= 'scheduled' then put(run, 'availableAt', nil) end
  if status == 'queued' then lane_push(run) end
  if status == 'scheduled' then schedule(run, at) end
  save(run)
  return status
end
