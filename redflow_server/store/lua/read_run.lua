-- Reads a run with its payloads, its open waits, and when its lease ends.
-- KEYS    prefix
-- ARGS    now run_id
-- RETURNS record data waits, all flat, lease_ends_at; that is false without a lease; empty when there is no run
-- REPEAT  yes
-- BATCH   yes
--@include run
if not read_run(ARGV[2]) then return {} end
return {redis.call('HGETALL', run_key(ARGV[2])), redis.call('HGETALL', data_key(ARGV[2])),
  redis.call('HGETALL', waits_key(ARGV[2])), redis.call('ZSCORE', LEASES, ARGV[2])}
