-- Gives the wait for a token its outcome, once; a repeat of the same is taken too.
-- KEYS    prefix
-- ARGS    now run_id step_name token status value value_meta
-- RETURNS ok | missing | not_waiting
-- EMITS   lane, due, finished, resolved, stop
-- REPEAT  yes
-- BATCH   yes
--@include effects relief
local run, name = read_run(ARGV[2]), ARGV[3]
local stored = run and redis.call('HGET', steps_key(run.id), 's:' .. name)
local step = stored and read_header(stored)
if not step or step.kind ~= 'token' or step.target ~= ARGV[4] then return 'missing' end
if step.status == 'waiting' and not ended(run) then
  begin_writes()
  resolve(run, name, {status = ARGV[5], value = ARGV[6], meta = ARGV[7]})
  return 'ok'
end
local is_same = step.status == ARGV[5] and step.meta == ARGV[7] and redis.call('HGET', steps_key(run.id), 'o:' .. name) == ARGV[6]
return is_same and 'ok' or 'not_waiting'
