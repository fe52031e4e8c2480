-- When the earliest in a set is due; false when it is empty.
--@include keys
local function next_due(set) return redis.call('ZRANGE', set, 0, 0, 'WITHSCORES')[2] or false end

-- Puts a run into a set of things that become due, and says so when nothing there is due earlier.
local function due_at(set, word, at, id)
  redis.call('ZADD', set, at, id)
  if redis.call('ZRANGE', set, 0, 0)[1] == id then
    redis.call('PUBLISH', WAKEUPS, string.format('due %s %.0f', word, at))
  end
end
