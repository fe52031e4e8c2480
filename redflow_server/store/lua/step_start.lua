-- Starts a run as a step of another one, which does not wait for it: effect and record in one.
-- KEYS    prefix
-- ARGS    now run_id token steps_recorded max_steps step_name step_seq close_policy child_id workflow queue max_attempts
--         priority input input_meta digest key key_ttl_ms
-- RETURNS ok cancel header value | duplicate status | steps_missing | non_deterministic name | too_many_steps name |
--         not_allowed | lost
-- EMITS   lane, due
-- REPEAT  yes
-- BATCH   yes
--@include child judge_step lease outcome record take_up
local run = read_run(ARGV[2])
local lost = refuse_lease(run, ARGV[3])
if lost then return lost end
if run.phase then return {'not_allowed'} end
if (tonumber(run.stepsDone) or 0) < tonumber(ARGV[4]) then return {'steps_missing'} end
local step = {name = ARGV[6], seq = ARGV[7], kind = 'start', status = 'succeeded', final = '1', tries = '', elapsed = 0,
  meta = '', value = ''}
local verdict, there = judge_step(run, step, tonumber(ARGV[5]))
if verdict == 'non_deterministic' or verdict == 'too_many_steps' then return {verdict, step.name} end

-- That no such run can be started is what the step has come to, for ever.
local is_new = verdict == 'ok' and not (there and there.final == '1')
if is_new then
  local child, why, what = named_run(run, {id = ARGV[9], workflow = ARGV[10], queue = ARGV[11], max_attempts = ARGV[12],
    priority = ARGV[13], typed = '1', input = ARGV[14], input_meta = ARGV[15], digest = ARGV[16], available_at = '',
    key = ARGV[17], key_ttl = tonumber(ARGV[18])})
  if child then
    step.value, step.target = '"' .. child.id .. '"', child.id
    local ends_too = ARGV[8] == 'cancel' and child.parentRunId == run.id
    if ends_too and redis.call('SADD', children_key(run.id), child.id) == 1 then put(run, 'children', '1') end
  else
    local refused = failed_with(why, what)
    step.status, step.value, step.meta = 'failed', refused.value, refused.meta
  end
  take_up(run)
  write_step(run, step, there)
  save(run)
end
local stored = redis.call('HMGET', steps_key(run.id), 's:' .. step.name, 'o:' .. step.name)
return {'ok', given(run.cancelRequestedAt) and 1 or 0, stored[1], stored[2]}
