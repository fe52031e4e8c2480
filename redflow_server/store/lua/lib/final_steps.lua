-- The steps that come with a result, from one of its arguments on; or nil and the answer that refuses the whole result.
--@include judge_step record
local function judge_final_steps(run, arguments, first, max_steps)
  local steps, room = {}, max_steps
  for i = first, #arguments, STEP_ARGS do
    local step = step_at(arguments, i)
    local verdict, there = judge_step(run, step, room)
    if verdict == 'non_deterministic' or verdict == 'too_many_steps' then return nil, {verdict, step.name} end
    if not there then room = room - 1 end
    steps[#steps + 1] = step
  end
  return steps
end

-- Writes them in order, as if each had been reported by itself. Returns name and header of those that have another value.
local function write_final_steps(run, steps)
  local conflicts = {}
  for _, step in ipairs(steps) do
    local verdict, there = judge_step(run, step, math.huge)
    if verdict == 'ok' then write_step(run, step, there) end
    if verdict == 'conflict' then conflicts[#conflicts + 1] = {step.name, write_header(there)} end
  end
  return conflicts
end
