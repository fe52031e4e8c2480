-- Removes a session that has ended from the listings.
-- KEYS    prefix
-- ARGS    now session_id
-- RETURNS nothing
-- REPEAT  yes
--@include keys
redis.call('ZREM', SESSIONS, ARGV[2])
redis.call('UNLINK', session_key(ARGV[2]))
