-- Events are numbered and remembered for a while, so that a wait that begins after its event still gets it. A channel is
-- a name of events with a key, or without one; its log is a stream by number, and all logs together are bounded.
-- A run has on each channel a cursor: the last event that it got, at first the last one before its own start.
--@include resolve
-- The outcome of a wait that ends without a value.
local NOTHING = {status = 'succeeded', value = '', meta = 'none'}

local function next_event(run, channel)
  local cursor = redis.call('HGET', cursors_key(run.id), channel) or run.eventSeq or '0'
  local found = redis.call('XRANGE', event_log_key(channel), cursor .. '-1', '+', 'COUNT', 1)[1]
  if not found then return nil end
  local _, id, _, at, _, payload, _, meta = unpack(found[2])
  return {number = string.match(found[1], '^%d+'), id = id, at = at, payload = payload, meta = meta}
end

-- Gives a wait the oldest event that its run has not had; false when there is none.
local function take_event(run, name, channel)
  local event = next_event(run, channel)
  if not event then return false end
  redis.call('HSET', cursors_key(run.id), channel, event.number)
  put(run, 'cursors', '1')
  count_effect(#event.payload)
  resolve(run, name, {status = 'succeeded', value = event.payload, meta = event.meta,
    target = event.id .. '@' .. event.at})
  return true
end
