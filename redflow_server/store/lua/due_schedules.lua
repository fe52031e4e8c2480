-- Reads the schedules whose next occurrence has come, for the gateway to find the occurrence after it.
-- KEYS    prefix
-- ARGS    now limit
-- RETURNS now schedules(id occurrence definition) next_at; next_at false when there are no schedules
-- REPEAT  yes
--@include due now
local schedules = {}
local entries = redis.call('ZRANGEBYSCORE', CRON_NEXT, '-inf', now, 'WITHSCORES', 'LIMIT', 0, tonumber(ARGV[2]))
for i = 1, #entries, 2 do
  schedules[#schedules + 1] = {entries[i], entries[i + 1], redis.call('HGET', CRON_DEF, entries[i])}
end
return {now, schedules, next_due(CRON_NEXT)}
