-- Starts the run of an occurrence, and plans the next one; only if the schedule is still as it was read. An occurrence
-- that was fired before, by a clock that was set back since, starts no second run.
-- KEYS    prefix
-- ARGS    now schedule_id definition occurrence next skipped run_id workflow input input_meta digest
-- RETURNS fired | passed | changed
-- EMITS   lane, due
-- REPEAT  yes
--@include routed run start
local id, occurrence = ARGV[2], tonumber(ARGV[4])
if redis.call('HGET', CRON_DEF, id) ~= ARGV[3] then return 'changed' end
if tonumber(redis.call('ZSCORE', CRON_NEXT, id) or -1) ~= occurrence then return 'changed' end
local start = {id = ARGV[7], workflow = ARGV[8], queue = '', max_attempts = '', priority = '0', typed = '1',
  input = ARGV[9], input_meta = ARGV[10], digest = ARGV[11], available_at = '', key = ''}
local is_new = occurrence > tonumber(redis.call('ZSCORE', CRON_LAST, id) or -1)

if is_new and not read_run(start.id) and routed(start) then start_run(start) end
if is_new then redis.call('ZADD', CRON_LAST, occurrence, id) end
if ARGV[6] ~= '0' then redis.call('HINCRBY', CRON_SKIPPED, id, ARGV[6]) end
due_at(CRON_NEXT, 'cron', ARGV[5], id)
return is_new and 'fired' or 'passed'
