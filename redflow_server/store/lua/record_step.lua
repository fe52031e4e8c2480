-- Records what a step did. The first success of a name is for ever. Of a step in a race its end is numbered with those of
-- the waits; a success withdraws its rivals, and a failure does not, as the next attempt needs them.
-- KEYS    prefix
-- ARGS    now run_id token steps_recorded max_steps name seq kind status final tries elapsed_ms meta value
--         ...rivals(step_name)
-- RETURNS ok cancel over | duplicate cancel over | conflict cancel over header value | non_deterministic | too_many_steps |
--         steps_missing | not_allowed | lost; `over` are rivals that have their outcome, as name header value
-- EMITS   lane, due, finished, resolved, stop
-- REPEAT  yes
-- BATCH   yes
--@include effects judge_step lease record relief resolve rivals_over take_up
local run = read_run(ARGV[2])
local step = step_at(ARGV, 6)
local lost = refuse_lease(run, ARGV[3])
if lost then
  local on_record = lost[1] == 'duplicate' and redis.call('HEXISTS', steps_key(ARGV[2]), 's:' .. step.name) == 1
  return on_record and {'duplicate', 0, {}} or {'lost'}
end
if run.phase then return {'not_allowed'} end
if (tonumber(run.stepsDone) or 0) < tonumber(ARGV[4]) then return {'steps_missing'} end
local cancel = given(run.cancelRequestedAt) and 1 or 0
local verdict, there = judge_step(run, step, tonumber(ARGV[5]))
if verdict == 'non_deterministic' or verdict == 'too_many_steps' then return {verdict} end

local function withdraw_open(name)
  local entry = redis.call('HGET', waits_key(run.id), name)
  if not entry then return end
  withdraw(run, name, read_wait(entry))
  local open = (tonumber(run.openWaits) or 1) - 1
  put(run, 'openWaits', open > 0 and open or nil)
end

-- A failure that is reported again, as after a lost answer, keeps its number.
local function number_in_race()
  local is_repeat = there and there.resolved ~= '' and there.status == step.status and there.attempt == run.attempt and
    redis.call('HGET', steps_key(run.id), 'o:' .. step.name) == step.value
  return is_repeat and there.resolved or number_resolution(run)
end

if verdict == 'ok' then
  begin_writes()
  take_up(run)
  local has_ended = step.status == 'succeeded' or step.final == '1'
  if #ARGV > 14 and has_ended then step.resolved = number_in_race() end
  for i = 15, step.status == 'succeeded' and #ARGV or 0 do withdraw_open(ARGV[i]) end
  write_step(run, step, there)
  save(run)
end
local over = {}
if #ARGV > 14 then over = rivals_over(run, {unpack(ARGV, 15)}) end
if verdict == 'conflict' then
  local stored = redis.call('HMGET', steps_key(run.id), 's:' .. step.name, 'o:' .. step.name)
  return {verdict, cancel, over, stored[1], stored[2]}
end
return {verdict, cancel, over}
