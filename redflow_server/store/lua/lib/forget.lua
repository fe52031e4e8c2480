-- Forgets remembered events. One whose waits have not all heard of it is kept.
--@include keys now
local KEEP_MS, MAX_BYTES, MAX_FORGOTTEN = 600000, 64 * 1024 * 1024, 100
local function entry_of(number, at, bytes, channel) return table.concat({number, at, bytes, channel}, ' ') end

local function forget(entry)
  local number, _, bytes, channel = string.match(entry, '^(%d+) (%d+) (%d+) (.*)$')
  if redis.call('ZSCORE', DELIVERIES, number .. ' ' .. channel) then return false end
  redis.call('XDEL', event_log_key(channel), number .. '-0')
  if redis.call('XLEN', event_log_key(channel)) == 0 then redis.call('DEL', event_log_key(channel)) end
  redis.call('ZREM', EVENT_MEMORY, entry)
  redis.call('DECRBY', EVENT_BYTES, bytes)
  return true
end

local function drop(entry)
  return forget(entry) and redis.call('INCR', EVENTS_DROPPED)
end

-- Says whether there may be more to forget.
local function forget_events()
  for _ = 1, MAX_FORGOTTEN do
    local entry = redis.call('ZRANGE', EVENT_MEMORY, 0, 0)[1]
    if not entry then return false end
    local is_old = tonumber(string.match(entry, '^%d+ (%d+)')) + KEEP_MS <= now
    local is_too_much = (tonumber(redis.call('GET', EVENT_BYTES)) or 0) > MAX_BYTES
    if not (is_old or is_too_much) or not (is_old and forget or drop)(entry) then return false end
  end
  return true
end
