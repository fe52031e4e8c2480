-- Reads a run with its payloads.
-- KEYS    prefix
-- ARGS    now run_id
-- RETURNS record data waits, all flat; empty when there is no run
-- REPEAT  yes
-- BATCH   yes
--@include run
if not read_run(ARGV[2]) then return {} end
return {redis.call('HGETALL', run_key(ARGV[2])), redis.call('HGETALL', data_key(ARGV[2])),
  redis.call('HGETALL', waits_key(ARGV[2]))}
