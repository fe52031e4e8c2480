-- Remembers an event, and forgets others: old ones, and the oldest when there are too many.
--@include drop_surplus
local function remember(event, number)
  local at, channel = string.format('%.0f', now), event.channel
  local bytes = string.format('%.0f', #event.payload + #event.meta + #channel + 200)
  redis.call('XADD', event_log_key(channel), number .. '-0', 'id', event.id, 'at', at, 'payload', event.payload, 'meta',
    event.meta, 'bytes', bytes)
  redis.call('ZADD', EVENT_MEMORY, number, entry_of(number, at, bytes, channel))
  redis.call('INCRBY', EVENT_BYTES, bytes)
  drop_surplus(channel)
  forget_events()
end
