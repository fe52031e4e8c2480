-- Goes on with an event that had too many waits for one script.
-- KEYS    prefix
-- ARGS    now
-- RETURNS 1 while there is more to deliver
-- EMITS   lane, due, finished, resolved, stop
-- REPEAT  yes
--@include deliver drop_surplus relief
local first = redis.call('ZRANGE', DELIVERIES, 0, 0, 'WITHSCORES')
if #first == 0 then return 0 end
local number, channel = string.match(first[1], '^(%d+) (.*)$')
begin_writes()
deliver(number, channel, first[2])
-- It may have been kept for this one.
drop_surplus(channel)
return redis.call('EXISTS', DELIVERIES)
