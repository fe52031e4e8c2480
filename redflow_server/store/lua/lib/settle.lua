-- Decides where a run goes when its lease ends: canceled if that was asked for, failed if its time is up, else where
-- the script wants it, which is a lane, a time or an end.
local function settled_status(run, wanted)
  if given(run.cancelRequestedAt) then return 'canceled' end
  local late = run.timeoutRequestedAt or (run.runDeadline and now >= tonumber(run.runDeadline))
  if late then return 'failed', FAILURES.run_timeout end
  return wanted
end

local function settle(run, wanted, at)
  local status, failure = settled_status(run, wanted)
  if run.leaseToken then hand_in(run, status) end
  if failure then redis.call('HSET', data_key(run.id), 'errorJson', failure) end
  if status ~= 'queued' and status ~= 'scheduled' then
    finish(run, status)
    return status
  end
  set_status(run, status)
  if status == 'queued' then lane_push(run) else schedule(run, at) end
  save(run)
  return status
end
