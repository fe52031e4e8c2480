-- Sets a run aside until one of its waits is over, and begins those that are new. When one of them is over already, the
-- run goes on under its lease. A parked run keeps its lease, and its handler stays in the memory of the worker. Without
-- waits it asks to go on although none is over.
-- KEYS    prefix
-- ARGS    now run_id token steps_recorded max_steps park ...waits(name seq kind group timeout_ms until_ms target workflow queue
--         max_attempts priority input input_meta digest key key_ttl_ms)
-- RETURNS ok status | parked cancel | resolved cancel steps(name header value) | duplicate status | steps_missing |
--         non_deterministic name | too_many_steps name | not_allowed | lost
-- EMITS   lane, due, finished, resolved, stop
-- REPEAT  yes
-- BATCH   yes
-- ORDER   last
--@include effects ended_waits judge_waits register_waits settle wait_arguments wait_steps
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
for i = 7, #ARGV, WAIT_ARGS do waits[#waits + 1] = wait_at(ARGV, i) end
local refused = refuse_waits(run, waits, tonumber(ARGV[5]))
if refused then return refused end

register_waits(run, waits)
local over = ended_waits(run, waits)
-- Waits that are not named here may be over without its worker having heard of it.
if #over == 0 and (tonumber(run.stepsDone) or 0) > tonumber(ARGV[4]) then over = ended_waits(run, wait_steps(run)) end
local goes_on = #over > 0 or #waits == 0
if not goes_on and ARGV[6] ~= '1' then return {'ok', settle(run, 'waiting')} end
if not goes_on then put(run, 'parked', '1') end
save(run)
if not goes_on then return {'parked', 0} end
return {'resolved', 0, over}
