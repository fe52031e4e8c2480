-- Ends a run that its worker stopped: canceled when that was asked for or the worker itself was stopped, else failed.
-- KEYS    prefix
-- ARGS    now run_id token steps_recorded max_steps wanted reason failure ...final_steps(name seq kind status final tries elapsed_ms
--         meta value)
-- RETURNS ok status conflicts(name header) | duplicate status | steps_missing | non_deterministic name | too_many_steps name | lost
-- EMITS   lane, due, finished, resolved, stop
-- REPEAT  yes
-- BATCH   yes
-- ORDER   last
--@include final_steps relief settle
local run = read_run(ARGV[2])
local lost = refuse_lease(run, ARGV[3])
if lost then return lost end
if (tonumber(run.stepsDone) or 0) < tonumber(ARGV[4]) then return {'steps_missing'} end
local steps, refused = judge_final_steps(run, ARGV, 9, tonumber(ARGV[5]))
if refused then return refused end

begin_writes()
local conflicts = write_final_steps(run, steps)
-- A verdict stands, also when its failure handler was stopped.
local wanted = run.phase and 'failed' or ARGV[6]
local status = settled_status(run, wanted)
if status == 'failed' then
  -- In phase failing it was the failure handler that was stopped; the failure stays the one that the run has failed with.
  redis.call('HSET', data_key(run.id), run.phase and 'handlerErrorJson' or 'errorJson', ARGV[8])
  if run.phase then put(run, 'failureHandler', 'failed') end
end
if status == 'canceled' and not given(run.cancelReason) then put(run, 'cancelReason', ARGV[7]) end
return {'ok', settle(run, wanted), conflicts}
