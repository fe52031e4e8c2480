-- Drops the oldest events of a channel that has too many. While waits are left to hear of one there may be more.
--@include forget
local MAX_OF_CHANNEL, MAX_DROPPED = 100, 5000
local function drop_surplus(channel)
  local surplus = redis.call('XLEN', event_log_key(channel)) - MAX_OF_CHANNEL
  for _ = 1, math.min(surplus, MAX_DROPPED) do
    local id, fields = unpack(redis.call('XRANGE', event_log_key(channel), '-', '+', 'COUNT', 1)[1])
    if not drop(entry_of(string.match(id, '^%d+'), fields[4], fields[10], channel)) then return end
  end
end
