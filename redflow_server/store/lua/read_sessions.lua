-- Lists the live sessions of all gateways, at most 1,000.
-- KEYS    prefix
-- ARGS    now
-- RETURNS descriptions
-- REPEAT  yes
--@include keys now
local descriptions = {}
for _, id in ipairs(redis.call('ZRANGEBYSCORE', SESSIONS, now, '+inf', 'LIMIT', 0, 1000)) do
  local description = redis.call('GET', session_key(id))
  if description then descriptions[#descriptions + 1] = description end
end
return descriptions
