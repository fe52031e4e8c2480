-- What a wait means: new, open, ended, non_deterministic or too_many_steps. Only reads.
--@include step waits
local function judge_wait(run, wait, room)
  local there = redis.call('HGET', steps_key(run.id), 's:' .. wait.name)
  if not there then return room > 0 and 'new' or 'too_many_steps' end
  local header = read_header(there)
  if header.kind ~= wait.kind then return 'non_deterministic' end
  if header.status ~= 'waiting' then return 'ended' end
  local open = read_wait(redis.call('HGET', waits_key(run.id), wait.name) or '')
  return wait.kind == 'event' and open.target ~= wait.target and 'non_deterministic' or 'open'
end

-- The answer that refuses all of the waits; nil when they may be registered. Only reads.
local function refuse_waits(run, waits, max_steps)
  if run.phase then return {'not_allowed'} end
  local room = max_steps - redis.call('HLEN', steps_key(run.id)) / 2
  for _, wait in ipairs(waits) do
    wait.verdict = judge_wait(run, wait, room)
    if wait.verdict == 'new' then room = room - 1 end
    if wait.verdict == 'non_deterministic' or wait.verdict == 'too_many_steps' then return {wait.verdict, wait.name} end
  end
  return nil
end
