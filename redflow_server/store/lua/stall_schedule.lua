-- Takes a schedule that cannot be evaluated out of the plan, with the reason, until it is registered anew.
-- KEYS    prefix
-- ARGS    now schedule_id occurrence problem
-- RETURNS stalled | changed
-- REPEAT  yes
--@include relief
if tonumber(redis.call('ZSCORE', CRON_NEXT, ARGV[2]) or -1) ~= tonumber(ARGV[3]) then return 'changed' end
begin_writes()
redis.call('ZREM', CRON_NEXT, ARGV[2])
redis.call('HSET', CRON_PROBLEM, ARGV[2], ARGV[4])
return 'stalled'
