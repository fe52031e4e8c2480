-- Of the waits of a run, those that are over, with their values while they fit: name, header, value or false.
--@include keys step
local MAX_ANSWER_BYTES = 1024 * 1024

-- All steps of a run that wait for another one, or did.
local function child_steps(run)
  local steps = {}
  for _, field in ipairs(redis.call('HKEYS', steps_key(run.id))) do
    local header = string.sub(field, 1, 2) == 's:' and read_header(redis.call('HGET', steps_key(run.id), field))
    if header and header.kind == 'child' then steps[#steps + 1] = {name = string.sub(field, 3)} end
  end
  return steps
end

local function ended_waits(run, waits)
  local steps, bytes = {}, 0
  for _, wait in ipairs(waits) do
    local header = redis.call('HGET', steps_key(run.id), 's:' .. wait.name)
    local step = read_header(header)
    if step.status ~= 'waiting' then
      local fits = bytes + tonumber(step.size) <= MAX_ANSWER_BYTES
      if fits then bytes = bytes + tonumber(step.size) end
      steps[#steps + 1] = {wait.name, header, fits and redis.call('HGET', steps_key(run.id), 'o:' .. wait.name)}
    end
  end
  return steps
end
