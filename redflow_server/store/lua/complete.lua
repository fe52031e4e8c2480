-- Ends a run that returned, with the steps that came along.
-- KEYS    prefix
-- ARGS    now run_id token steps_recorded max_steps output output_meta has_output ...final_steps(name seq kind status final tries elapsed_ms
--         meta value)
-- RETURNS ok status conflicts(name header) | run_failure_handler | duplicate status | steps_missing |
--         non_deterministic name | too_many_steps name | lost
-- EMITS   lane, due, finished, resolved, stop
-- REPEAT  yes
-- BATCH   yes
-- ORDER   last
--@include final_steps relief settle
local run = read_run(ARGV[2])
local lost = refuse_lease(run, ARGV[3])
if lost then return lost end
if run.phase then return {'run_failure_handler'} end
if (tonumber(run.stepsDone) or 0) < tonumber(ARGV[4]) then return {'steps_missing'} end
local steps, refused = judge_final_steps(run, ARGV, 9, tonumber(ARGV[5]))
if refused then return refused end

begin_writes()
local conflicts = write_final_steps(run, steps)
if settled_status(run, 'succeeded') == 'succeeded' then
  if run.failures then redis.call('HDEL', data_key(run.id), 'errorJson') end
  if ARGV[8] == '1' then redis.call('HSET', data_key(run.id), 'outputJson', ARGV[6]) end
  if ARGV[7] ~= '' then redis.call('HSET', data_key(run.id), 'outputMeta', ARGV[7]) end
end
return {'ok', settle(run, 'succeeded'), conflicts}
