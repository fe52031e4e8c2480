-- Leaves the subscribers to the loop, in parts of what one script may start.
--@include due now
local function leave_to_fan_out(event, workflows, size)
  local key, parts = emitted_key(event.id), math.ceil(#workflows / size)
  for part = 1, parts do
    local names = {unpack(workflows, (part - 1) * size + 1, math.min(part * size, #workflows))}
    redis.call('HSET', key, 'part:' .. part, cjson.encode(names))
  end
  redis.call('HSET', key, 'payload', event.payload, 'meta', event.meta, 'digest', event.digest, 'availableAt',
    event.available_at, 'number', event.number or '', 'part', 1, 'parts', parts)
  -- It may be on record from an earlier emission, of which the window has passed.
  redis.call('PERSIST', key)
  due_at(FAN_OUTS, 'outbox', now, event.id)
end
