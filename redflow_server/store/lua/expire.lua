-- Ends the runs whose start or run time-out has passed; a worker that has one is told to stop first.
-- KEYS    prefix
-- ARGS    now limit
-- RETURNS expired next_at; next_at false when there are no deadlines
-- EMITS   stop, finished
-- REPEAT  yes
--@include keys now run save index lane due deadline failures lease finish relief leave
local expired = 0

local function fail_now(run, failure)
  leave(run)
  redis.call('HSET', data_key(run.id), 'errorJson', failure)
  finish(run, 'failed')
  expired = expired + 1
end

local function expire(run)
  if (tonumber(run.runDeadline) or math.huge) <= now then
    if not run.leaseToken then return fail_now(run, FAILURES.run_timeout) end
    put(run, 'timeoutRequestedAt', run.timeoutRequestedAt or now)
    save(run)
    redis.call('PUBLISH', gateway_channel(gateway_of(run)), 'stop ' .. run.leaseToken .. ' timeout ')
    expired = expired + 1
  elseif (tonumber(run.startDeadline) or math.huge) > now then
    set_deadline(run)
  elseif not run.leaseToken then
    fail_now(run, FAILURES.start_timeout)
  elseif run.acked then
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
