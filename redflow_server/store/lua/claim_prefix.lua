-- Takes the prefix for this engine, or says who has it.
-- KEYS    prefix
-- ARGS    now format
-- RETURNS ours | foreign | format, with what was found
-- REPEAT  yes
--@include keys
local found = redis.call('HMGET', CONFIG, 'engine', 'format')
local engine, format = found[1], found[2]
if engine == 'redflow-gateway' then return format == ARGV[2] and {'ours', format} or {'format', format or ''} end
if engine or redis.call('EXISTS', WORKFLOWS) == 1 then return {'foreign', engine or ''} end
redis.call('HSET', CONFIG, 'engine', 'redflow-gateway', 'format', ARGV[2], 'shards', '1')
return {'ours', ARGV[2]}
