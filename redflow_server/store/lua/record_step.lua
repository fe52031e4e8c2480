-- Records what a step did. The first success of a name is for ever.
-- KEYS    prefix
-- ARGS    now run_id token steps_recorded max_steps name seq kind status final elapsed_ms meta value
-- RETURNS ok cancel | duplicate cancel | conflict cancel header value | non_deterministic | too_many_steps |
--         steps_missing | not_allowed | lost
-- EMITS   due
-- REPEAT  yes
-- BATCH   yes
--@include deadline lease judge_step record relief run
local run = read_run(ARGV[2])
local step = step_at(ARGV, 6)
local lost = refuse_lease(run, ARGV[3])
if lost then
  local on_record = lost[1] == 'duplicate' and redis.call('HEXISTS', steps_key(ARGV[2]), 's:' .. step.name) == 1
  return on_record and {'duplicate', 0} or {'lost'}
end
if run.phase then return {'not_allowed'} end
if (tonumber(run.stepsDone) or 0) < tonumber(ARGV[4]) then return {'steps_missing'} end
local cancel = given(run.cancelRequestedAt) and 1 or 0
local verdict, there = judge_step(run, step, tonumber(ARGV[5]))
if verdict == 'conflict' then
  local stored = redis.call('HMGET', steps_key(run.id), 's:' .. step.name, 'o:' .. step.name)
  return {verdict, cancel, stored[1], stored[2]}
end
if verdict == 'ok' then
  begin_writes()
  put(run, 'acked', '1')
  mark_started(run)
  write_step(run, step, there)
  save(run)
end
return {verdict, cancel}
