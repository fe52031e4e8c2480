-- Keeps the descriptions of live sessions for listings.
-- KEYS    prefix
-- ARGS    now keep_ms ...sessions(session_id description)
-- RETURNS number of live sessions of all gateways
-- REPEAT  yes
--@include now relief
local keep_ms = tonumber(ARGV[2])
begin_writes()
redis.call('ZREMRANGEBYSCORE', SESSIONS, '-inf', now)
for i = 3, #ARGV, 2 do
  redis.call('SET', session_key(ARGV[i]), ARGV[i + 1], 'PX', keep_ms)
  redis.call('ZADD', SESSIONS, now + keep_ms, ARGV[i])
end
return redis.call('ZCARD', SESSIONS)
