-- Takes the prefix for this engine, or says who has it.
-- KEYS    prefix
-- ARGS    now format
-- RETURNS ours | foreign | format, with the format found
-- REPEAT  yes
--@include keys
local format = redis.call('HGET', CONFIG, 'format')
if format then return format == ARGV[2] and {'ours', format} or {'format', format} end
if redis.call('EXISTS', WORKFLOWS) == 1 then return {'foreign', ''} end
redis.call('HSET', CONFIG, 'engine', 'redflow-gateway', 'format', ARGV[2], 'shards', '1')
return {'ours', ARGV[2]}
