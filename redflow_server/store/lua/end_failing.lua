-- Ends a run whose failure handler has run, with what became of the handler.
-- KEYS    prefix
-- ARGS    now run_id token handler_state handler_failure
-- RETURNS ok status | duplicate status | not_allowed | lost
-- EMITS   lane, due, finished, resolved, stop
-- REPEAT  yes
-- BATCH   yes
-- ORDER   last
--@include relief settle
local run = read_run(ARGV[2])
local lost = refuse_lease(run, ARGV[3])
if lost then return lost end
if not run.phase then return {'not_allowed'} end

begin_writes()
put(run, 'failureHandler', ARGV[4])
if ARGV[5] ~= '' then redis.call('HSET', data_key(run.id), 'handlerErrorJson', ARGV[5]) end
return {'ok', settle(run, 'failed')}
