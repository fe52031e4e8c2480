-- Says when the next thing of each kind is due, and which lanes have filled since a change number.
-- KEYS    prefix
-- ARGS    now lane_change
-- RETURNS now scheduled deadlines timers cron outbox lanes(name change) lane_change; a time is false when nothing is set aside
-- REPEAT  yes
--@include due now
local lanes = redis.call('ZRANGEBYSCORE', LANES, '(' .. ARGV[2], '+inf', 'WITHSCORES', 'LIMIT', 0, 1000)
local left = redis.call('EXISTS', FAN_OUTS, DELIVERIES) > 0 and now
return {now, next_due(SCHEDULED), next_due(DEADLINES), next_due(TIMERS), next_due(CRON_NEXT), next_due(OUTBOX) or left,
  lanes, tonumber(redis.call('GET', LANE_SEQ) or 0)}
