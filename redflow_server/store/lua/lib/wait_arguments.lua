-- A wait comes as arguments of a script: name seq kind group timeout_ms until_ms target, and for a run that may have to be
-- started workflow queue max_attempts priority input input_meta digest key key_ttl_ms. A time in the past is now.
--@include now
local WAIT_ARGS = 16
local function wait_at(arguments, i)
  local name, seq, kind, group, timeout, at, target, workflow, queue, max_attempts, priority, input, input_meta, digest,
    key, key_ttl = unpack(arguments, i, i + WAIT_ARGS - 1)
  local deadline = tonumber(at) or tonumber(timeout) and now + tonumber(timeout)
  return {name = name, seq = seq, kind = kind, group = group, target = target,
    deadline = deadline and string.format('%.0f', math.max(now, deadline)) or '',
    start = {id = target, workflow = workflow, queue = queue, max_attempts = max_attempts, priority = priority,
      typed = '1', input = input, input_meta = input_meta, digest = digest, available_at = '', key = key,
      key_ttl = tonumber(key_ttl)}}
end
