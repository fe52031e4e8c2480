-- Counts runs by status, and the runs in the 500 lanes that filled last.
-- KEYS    prefix
-- ARGS    now ...statuses(status)
-- RETURNS counts lanes(name depth) lane_count events_remembered events_dropped
-- REPEAT  yes
--@include keys
local counts, lanes = {}, {}
for i = 2, #ARGV do counts[#counts + 1] = redis.call('ZCARD', status_key(ARGV[i])) end
for _, name in ipairs(redis.call('ZREVRANGE', LANES, 0, 499)) do
  lanes[#lanes + 1] = {name, redis.call('ZCARD', lane_key(name))}
end
return {counts, lanes, redis.call('ZCARD', LANES), redis.call('ZCARD', EVENT_MEMORY), redis.call('GET', EVENTS_DROPPED)}
