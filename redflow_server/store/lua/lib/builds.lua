--@include keys
local function first_seen(owner, build) return tonumber(redis.call('HGET', owner_builds_key(owner), build) or 0) end

-- An owner's builds are remembered by when they were first seen, the last hundred of them.
local function drop_oldest_build(owner)
  if redis.call('HLEN', owner_builds_key(owner)) <= 100 then return end
  local flat, oldest = redis.call('HGETALL', owner_builds_key(owner)), 1
  for i = 1, #flat, 2 do
    if tonumber(flat[i + 1]) < tonumber(flat[oldest + 1]) then oldest = i end
  end
  redis.call('HDEL', owner_builds_key(owner), flat[oldest])
end
