-- Ends the runs whose start or run time-out has passed, or whose failure handler takes too long. A worker that has one is
-- told to stop first.
-- KEYS    prefix
-- ARGS    now limit
-- RETURNS expired next_at; next_at false when there are no deadlines
-- EMITS   lane, due, finished, resolved, stop
-- REPEAT  yes
--@include relief settle
local expired = 0

local function is_over(run, field) return (tonumber(run[field]) or math.huge) <= now end

local function order_to_stop(run, reason)
  redis.call('PUBLISH', gateway_channel(gateway_of(run)), 'stop ' .. run.leaseToken .. ' ' .. reason .. ' ')
end

local function fail_unstarted(run)
  leave(run)
  redis.call('HSET', data_key(run.id), 'errorJson', FAILURES.start_timeout)
  finish(run, 'failed')
end

local function end_failing(run)
  if run.leaseToken then
    order_to_stop(run, 'lease_lost')
    revoke(run)
  end
  leave(run)
  finish(run, settled_status(run, 'failed'))
end

local function expire(run)
  expired = expired + 1
  if is_over(run, 'failingDeadline') then return end_failing(run) end
  if is_over(run, 'runDeadline') then
    if run.leaseToken then
      put(run, 'timeoutRequestedAt', run.timeoutRequestedAt or now)
      save(run)
      return order_to_stop(run, 'timeout')
    end
    leave(run)
    return settle(run, 'failed')
  end
  if is_over(run, 'startDeadline') and not run.leaseToken then return fail_unstarted(run) end
  expired = expired - 1
  if not is_over(run, 'startDeadline') then return set_deadline(run) end
  if run.acked then
    mark_started(run)
    save(run)
  else
    -- It is on its way to a worker; look again when that is decided.
    redis.call('ZADD', DEADLINES, now + 1000, run.id)
  end
end

begin_writes()
for _, id in ipairs(redis.call('ZRANGEBYSCORE', DEADLINES, '-inf', now, 'LIMIT', 0, tonumber(ARGV[2]))) do
  redis.call('ZREM', DEADLINES, id)
  local run = read_run(id)
  if run and not ended(run) then expire(run) end
end
return {expired, next_due(DEADLINES)}
