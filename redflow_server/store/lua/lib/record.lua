-- Writes a step that was judged ok. A first success is progress: what was lost before no longer counts. It has started
-- with its first try in the attempt.
--@include now progress step
local function write_step(run, step, there)
  step.attempt, step.size = run.attempt, tostring(#step.value)
  step.finishedAt, step.startedAt = string.format('%.0f', now), string.format('%.0f', now - step.elapsed)
  if there and there.attempt == step.attempt and (tonumber(step.tries) or 0) > 1 then step.startedAt = there.startedAt end
  if step.status == 'succeeded' then progress(run) end
  redis.call('HSET', steps_key(run.id), 's:' .. step.name, write_header(step), 'o:' .. step.name, step.value)
  local finished_before = there and there.status == 'failed'
  if not finished_before then put(run, 'stepsDone', (tonumber(run.stepsDone) or 0) + 1) end
  local size_before = there and tonumber(there.size) or 0
  put(run, 'stepsBytes', (tonumber(run.stepsBytes) or 0) + #step.value - size_before)
end
