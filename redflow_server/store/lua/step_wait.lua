-- Starts the runs that a run is going to wait for, which itself goes on.
-- KEYS    prefix
-- ARGS    now run_id token steps_recorded max_steps ...waits(name seq child_id workflow queue max_attempts priority input
--         input_meta digest key key_ttl_ms)
-- RETURNS ok cancel | duplicate status | steps_missing | non_deterministic name | too_many_steps name | not_allowed | lost
-- EMITS   lane, due
-- REPEAT  yes
-- BATCH   yes
--@include judge_waits lease register_waits wait_arguments
local run = read_run(ARGV[2])
local lost = refuse_lease(run, ARGV[3])
if lost then return lost end
if (tonumber(run.stepsDone) or 0) < tonumber(ARGV[4]) then return {'steps_missing'} end
local waits = {}
for i = 6, #ARGV, WAIT_ARGS do waits[#waits + 1] = wait_at(ARGV, i) end
local refused = refuse_waits(run, waits, tonumber(ARGV[5]))
if refused then return refused end

register_waits(run, waits)
save(run)
return {'ok', given(run.cancelRequestedAt) and 1 or 0}
