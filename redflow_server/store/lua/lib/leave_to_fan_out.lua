-- Leaves the subscribers to the loop, in parts of what one script may start.
--@include due now
local function leave_to_fan_out(event, workflows, size, run_ids)
  local key, parts = emitted_key(event.id), math.ceil(#workflows / size)
  -- What is left of an earlier emission, whose window has passed, would take it away before its time.
  if not redis.call('ZSCORE', FAN_OUTS, event.id) then redis.call('UNLINK', key) end
  for part = 1, parts do
    local names = {unpack(workflows, (part - 1) * size + 1, math.min(part * size, #workflows))}
    redis.call('HSET', key, 'part:' .. part, cjson.encode(names))
  end
  redis.call('HSET', key, 'name', event.name, 'runIds', run_ids, 'payload', event.payload, 'meta', event.meta,
    'digest', event.digest, 'availableAt', event.available_at, 'number', event.number or '', 'part', 1, 'parts', parts)
  due_at(FAN_OUTS, 'outbox', now, event.id)
end
