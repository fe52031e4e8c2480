-- All steps of a run that wait, or did.
--@include keys step
local WAITS = {timer = true, event = true, child = true, token = true}
local function wait_steps(run)
  local steps = {}
  for _, field in ipairs(redis.call('HKEYS', steps_key(run.id))) do
    local header = string.sub(field, 1, 2) == 's:' and read_header(redis.call('HGET', steps_key(run.id), field))
    if header and WAITS[header.kind] then steps[#steps + 1] = {name = string.sub(field, 3)} end
  end
  return steps
end
