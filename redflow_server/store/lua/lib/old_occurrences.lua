-- The last occurrence of a schedule that is gone is remembered for a day, in case the schedule comes back. A hundred of
-- all are looked at, by chance: the oldest may be those of schedules that come once a year.
--@include keys now
local function forget_old_occurrences()
  local some = redis.call('ZRANDMEMBER', CRON_LAST, 100, 'WITHSCORES')
  for i = 1, #some, 2 do
    local is_old = tonumber(some[i + 1]) <= now - 86400000
    if is_old and redis.call('HEXISTS', CRON_DEF, some[i]) == 0 then redis.call('ZREM', CRON_LAST, some[i]) end
  end
end
