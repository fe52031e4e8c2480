-- Sets a run aside until one of the runs it waits for has ended, and starts those that do not exist yet. When one of
-- them has ended already, the run goes on under its lease.
-- KEYS    prefix
-- ARGS    now run_id token steps_recorded max_steps ...waits(name seq child_id workflow queue max_attempts priority input
--         input_meta digest key key_ttl_ms)
-- RETURNS ok status | resolved cancel steps(name header value) | duplicate status | steps_missing |
--         non_deterministic name | too_many_steps name | not_allowed | lost
-- EMITS   lane, due, finished, stop
-- REPEAT  yes
-- BATCH   yes
-- ORDER   last
--@include ended_waits judge_waits register_waits settle wait_arguments
local run = read_run(ARGV[2])
local lost = refuse_lease(run, ARGV[3])
if lost then return lost end
if (tonumber(run.stepsDone) or 0) < tonumber(ARGV[4]) then return {'steps_missing'} end
-- A run whose end is decided waits for nothing any more.
if settled_status(run, 'waiting') ~= 'waiting' then
  begin_writes()
  return {'ok', settle(run, 'waiting')}
end
local waits = {}
for i = 6, #ARGV, WAIT_ARGS do waits[#waits + 1] = wait_at(ARGV, i) end
local refused = refuse_waits(run, waits, tonumber(ARGV[5]))
if refused then return refused end

register_waits(run, waits)
local over = ended_waits(run, waits)
-- Waits that are not named here may be over without its worker having heard of it.
if #over == 0 and (tonumber(run.stepsDone) or 0) > tonumber(ARGV[4]) then over = ended_waits(run, child_steps(run)) end
if #over == 0 then return {'ok', settle(run, 'waiting')} end
save(run)
return {'resolved', 0, over}
