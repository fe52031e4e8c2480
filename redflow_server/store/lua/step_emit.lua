-- Emits an event as a step of a run: effect and record in one, so that it is emitted once, whatever happens.
-- KEYS    prefix
-- ARGS    now run_id token steps_recorded max_steps step_name step_seq event_id event_name payload payload_meta digest
--         available_at key key_ttl_ms channel delay_ms
-- RETURNS ok cancel header value | duplicate status | steps_missing | non_deterministic name | too_many_steps name |
--         not_allowed | lost
-- EMITS   lane, due, finished, resolved, stop
-- REPEAT  yes
-- BATCH   yes
--@include emit lease judge_step record take_up
local run = read_run(ARGV[2])
local lost = refuse_lease(run, ARGV[3])
if lost then return lost end
if run.phase then return {'not_allowed'} end
if (tonumber(run.stepsDone) or 0) < tonumber(ARGV[4]) then return {'steps_missing'} end
local step = {name = ARGV[6], seq = ARGV[7], kind = 'emit', status = 'succeeded', final = '1', elapsed = 0,
  tries = '', meta = '', value = ''}
local verdict, there = judge_step(run, step, tonumber(ARGV[5]))
if verdict == 'non_deterministic' or verdict == 'too_many_steps' then return {verdict, step.name} end

if verdict == 'ok' then
  local _, run_ids = emit({id = ARGV[8], name = ARGV[9], payload = ARGV[10], meta = ARGV[11], digest = ARGV[12],
    available_at = ARGV[17] ~= '' and now + tonumber(ARGV[17]) or ARGV[13], key = ARGV[14], key_ttl = tonumber(ARGV[15]),
    channel = ARGV[16]})
  -- It may have been what a wait of the run itself was for.
  run = read_run(run.id)
  step.value = run_ids == '' and '[]' or '["' .. string.gsub(run_ids, ' ', '","') .. '"]'
  take_up(run)
  write_step(run, step, there)
  save(run)
end
local stored = redis.call('HMGET', steps_key(run.id), 's:' .. step.name, 'o:' .. step.name)
return {'ok', given(run.cancelRequestedAt) and 1 or 0, stored[1], stored[2]}
