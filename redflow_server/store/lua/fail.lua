-- Ends an attempt that raised: another one follows after a delay, or the run has failed, or its failure handler is to
-- be run under the same lease.
-- KEYS    prefix
-- ARGS    now run_id token steps_recorded max_steps failure retryable delay_ms jitter ...final_steps(name seq kind status final tries elapsed_ms
--         meta value)
-- RETURNS ok status conflicts(name header) | run_failure_handler | duplicate status | steps_missing |
--         non_deterministic name | too_many_steps name | lost
-- EMITS   lane, due, finished, resolved, stop
-- REPEAT  yes
-- BATCH   yes
-- ORDER   last
--@include backoff final_steps relief settle take_up
local run = read_run(ARGV[2])
local lost = refuse_lease(run, ARGV[3])
if lost then return lost end
if run.phase then return {'run_failure_handler'} end
if (tonumber(run.stepsDone) or 0) < tonumber(ARGV[4]) then return {'steps_missing'} end
local steps, refused = judge_final_steps(run, ARGV, 10, tonumber(ARGV[5]))
if refused then return refused end

begin_writes()
local conflicts = write_final_steps(run, steps)
redis.call('HSET', data_key(run.id), 'errorJson', ARGV[6])
take_up(run)
local attempt = tonumber(run.attempt) or 1
if ARGV[7] ~= '1' or attempt >= (tonumber(run.maxAttempts) or 1) then
  local is_plain = select(2, settled_status(run, 'failed')) == nil and not given(run.cancelRequestedAt)
  if is_plain and begin_failing(run) then
    save(run)
    return {'run_failure_handler'}
  end
  return {'ok', settle(run, 'failed'), conflicts}
end
local at = now + (tonumber(ARGV[8]) or backoff_ms(run.retryPolicy, attempt, tonumber(ARGV[9])))
put(run, 'failures', attempt)
put(run, 'place', nil)
progress(run)
return {'ok', settle(run, at > now and 'scheduled' or 'queued', at), conflicts}
