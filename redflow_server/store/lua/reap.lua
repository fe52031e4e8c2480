-- Takes expired leases from their holders: back to the lane, to their waits, or to an end.
-- KEYS    prefix
-- ARGS    now lease_ms quiet_ms max_losses limit
-- RETURNS queued waiting failed canceled
-- EMITS   lane, due, finished, resolved, stop
-- REPEAT  yes
--@include home losses relief settle
local lease_ms, quiet_ms = tonumber(ARGV[2]), tonumber(ARGV[3])
local max_losses, limit = tonumber(ARGV[4]), tonumber(ARGV[5])
local counts = {queued = 0, waiting = 0, failed = 0, canceled = 0}
local at_last = tonumber(redis.call('GET', REAP_LAST) or now)
begin_writes()
redis.call('SET', REAP_LAST, now)

-- Nobody has looked for a while: Redis or every gateway was away, or the clock was set. No worker could renew, so all
-- get the time of a lease to do it.
if now - at_last > quiet_ms then redis.call('SET', REAP_NOT_BEFORE, now + lease_ms) end
local not_before = tonumber(redis.call('GET', REAP_NOT_BEFORE) or 0)
if now < not_before and not_before <= now + lease_ms then return {0, 0, 0, 0} end
redis.call('DEL', REAP_NOT_BEFORE)

-- No lease may end later than a new one would: the clock was set back.
for _, id in ipairs(redis.call('ZRANGEBYSCORE', LEASES, string.format('(%.0f', now + lease_ms), '+inf', 'LIMIT', 0, limit)) do
  redis.call('ZADD', LEASES, now + lease_ms, id)
end

for _, id in ipairs(redis.call('ZRANGEBYSCORE', LEASES, '-inf', now, 'LIMIT', 0, limit)) do
  local run = read_run(id)
  if run and run.status == 'running' then
    local wanted
    if run.parked then
      wanted = home_of(run)
    else
      wanted = run.acked and lose(run, max_losses) or miss(run, max_losses)
    end
    revoke(run)
    local status = settle(run, wanted)
    counts[status] = counts[status] + 1
  else
    redis.call('ZREM', LEASES, id)
  end
end
return {counts.queued, counts.waiting, counts.failed, counts.canceled}
