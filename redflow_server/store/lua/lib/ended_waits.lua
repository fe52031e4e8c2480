-- Of the waits of a run, those that are over, with their values while they fit: name, header, value or false.
--@include keys step
local MAX_ANSWER_BYTES = 1024 * 1024

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
