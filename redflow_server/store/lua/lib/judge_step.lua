-- What recording a step would mean: ok, duplicate, conflict, non_deterministic or too_many_steps, with the header
-- that is there. Only reads.
--@include run step
local function judge_step(run, step, max_steps)
  local there = redis.call('HGET', steps_key(run.id), 's:' .. step.name)
  if not there then
    local count = redis.call('HLEN', steps_key(run.id)) / 2
    return count >= max_steps and 'too_many_steps' or 'ok'
  end
  local header = read_header(there)
  if header.kind ~= step.kind then return 'non_deterministic', header end
  if header.status == 'withdrawn' then return 'conflict', header end
  if header.status ~= 'succeeded' then return 'ok', header end
  local same = step.status == 'succeeded' and redis.call('HGET', steps_key(run.id), 'o:' .. step.name) == step.value
  return same and 'duplicate' or 'conflict', header
end
