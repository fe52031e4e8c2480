-- What recording a step would mean: ok, duplicate, conflict, non_deterministic or too_many_steps, with the header
-- that is there. Only reads.
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

-- Writes a step that was judged ok. A first success is progress: what was lost before no longer counts.
local function write_step(run, step, there)
  step.attempt, step.size = run.attempt, tostring(#step.value)
  step.finishedAt, step.startedAt = string.format('%.0f', now), string.format('%.0f', now - step.elapsed)
  if step.status == 'succeeded' then
    put(run, 'losses', nil)
    put(run, 'undelivered', nil)
  end
  redis.call('HSET', steps_key(run.id), 's:' .. step.name, write_header(step), 'o:' .. step.name, step.value)
  local finished_before = there and there.status == 'failed'
  if not finished_before then put(run, 'stepsDone', (tonumber(run.stepsDone) or 0) + 1) end
  local size_before = there and tonumber(there.size) or 0
  put(run, 'stepsBytes', (tonumber(run.stepsBytes) or 0) + #step.value - size_before)
end
