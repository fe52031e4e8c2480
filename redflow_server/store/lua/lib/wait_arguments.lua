-- A wait for the end of a run comes as arguments of a script:
-- name seq child_id workflow queue max_attempts priority input input_meta digest key key_ttl_ms
local WAIT_ARGS = 12
local function wait_at(arguments, i)
  local name, seq, id, workflow, queue, max_attempts, priority, input, input_meta, digest, key, key_ttl =
    unpack(arguments, i, i + WAIT_ARGS - 1)
  return {name = name, seq = seq, start = {id = id, workflow = workflow, queue = queue, max_attempts = max_attempts,
    priority = priority, typed = '1', input = input, input_meta = input_meta, digest = digest, available_at = '',
    key = key, key_ttl = tonumber(key_ttl)}}
end
