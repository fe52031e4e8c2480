-- The event as it was emitted before; or nil.
--@include keys now
local function emitted_before(event)
  local id = event.key ~= '' and redis.call('GET', event_key_key(event.name, event.key)) or event.id
  local stored = redis.call('HMGET', emitted_key(id), 'runIds', 'expiresAt')
  if not stored[1] or tonumber(stored[2]) <= now then return nil end
  return {id = id, run_ids = stored[1]}
end

-- Its window counts anew with each repeat.
local function keep_emitted(event, id)
  redis.call('HSET', emitted_key(id), 'expiresAt', now + event.key_ttl)
  local keep_ms = string.format('%.0f', event.key_ttl + 60000)
  if not redis.call('ZSCORE', FAN_OUTS, id) then redis.call('PEXPIRE', emitted_key(id), keep_ms) end
  if event.key ~= '' then redis.call('SET', event_key_key(event.name, event.key), id, 'PX', keep_ms) end
end
