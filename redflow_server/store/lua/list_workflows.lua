-- Lists the names of the registered workflows.
-- KEYS    prefix
-- ARGS    now
-- RETURNS names
-- REPEAT  yes
--@include keys
return redis.call('SMEMBERS', WORKFLOWS)
