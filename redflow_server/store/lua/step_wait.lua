-- Begins waits of a run that itself goes on.
-- KEYS    prefix
-- ARGS    now run_id token steps_recorded max_steps ...waits(name seq kind group timeout_ms until_ms target workflow queue
--         max_attempts priority input input_meta digest key key_ttl_ms)
-- RETURNS ok cancel | resolved cancel steps(name header value), also of open waits for tokens | duplicate status | steps_missing |
--         non_deterministic name | too_many_steps name | not_allowed | lost
-- EMITS   lane, due, finished, resolved, stop
-- REPEAT  yes
-- BATCH   yes
--@include effects ended_waits judge_waits lease register_waits wait_arguments
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
local cancel, over = given(run.cancelRequestedAt) and 1 or 0, ended_waits(run, waits)
-- The token of a wait is for its worker to know while the wait is open.
for _, wait in ipairs(waits) do
  local open = wait.kind == 'token' and redis.call('HEXISTS', waits_key(run.id), wait.name) == 1
  if open then over[#over + 1] = {wait.name, redis.call('HGET', steps_key(run.id), 's:' .. wait.name), ''} end
end
if #over > 0 then return {'resolved', cancel, over} end
return {'ok', cancel}
