-- Goes on with the event that has waited longest for the rest of its subscribers.
-- KEYS    prefix
-- ARGS    now
-- RETURNS started has_more
-- EMITS   lane, due
-- REPEAT  yes
--@include fan_out
local id = redis.call('ZRANGE', FAN_OUTS, 0, 0)[1]
if not id then return {0, 0} end
local KEPT = {name = true, runIds = true, expiresAt = true}
local key = emitted_key(id)
local fields = redis.call('HMGET', key, 'payload', 'meta', 'digest', 'availableAt', 'part', 'parts', 'expiresAt', 'number')
local event = {id = id, payload = fields[1], meta = fields[2], digest = fields[3], available_at = fields[4],
  number = fields[8] ~= '' and fields[8] or nil}
local part, parts, expires_at = tonumber(fields[5] or 0), tonumber(fields[6] or 0), tonumber(fields[7] or 0)
local workflows = cjson.decode(redis.call('HGET', key, 'part:' .. part) or '[]')

if fields[1] then redis.call('HSET', key, 'part', part + 1) end
for _, workflow in ipairs(workflows) do
  start_subscriber(event, workflow, redis.call('HGET', key, 'queue:' .. workflow) or '')
end
redis.call('HDEL', key, 'part:' .. part)
if part >= parts then
  redis.call('ZREM', FAN_OUTS, id)
  for _, field in ipairs(redis.call('HKEYS', key)) do
    if not KEPT[field] then redis.call('HDEL', key, field) end
  end
  redis.call('PEXPIRE', key, string.format('%.0f', math.max(0, expires_at - now) + 60000))
end
return {#workflows, redis.call('EXISTS', FAN_OUTS)}
