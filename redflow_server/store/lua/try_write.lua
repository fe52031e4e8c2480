-- Whether Redis writes: it refuses this as it would refuse a start, and nothing is changed.
-- KEYS    prefix
-- ARGS    now
-- RETURNS 0
-- REPEAT  yes
--@include keys
return redis.call('ZADD', LEASES, 'XX', 0, '')
