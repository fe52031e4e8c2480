-- The steps that come with a result, from one of its arguments on. Returns them with their verdicts, or the word that refuses
-- the whole result.
local function judge_final_steps(run, arguments, first, max_steps)
  local judged = {}
  for i = first, #arguments, STEP_ARGS do
    local step = step_at(arguments, i)
    local verdict, there = judge_step(run, step, max_steps)
    if verdict == 'non_deterministic' or verdict == 'too_many_steps' then return nil, {verdict, step.name} end
    judged[#judged + 1] = {step = step, verdict = verdict, there = there}
  end
  return judged
end

-- Writes the new ones; returns the names of those that had another value.
local function write_final_steps(run, judged)
  local conflicts = {}
  for _, one in ipairs(judged) do
    if one.verdict == 'ok' then write_step(run, one.step, one.there) end
    if one.verdict == 'conflict' then conflicts[#conflicts + 1] = one.step.name end
  end
  return conflicts
end
