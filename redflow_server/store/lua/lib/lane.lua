-- Lanes hold the queued runs of one workflow in one queue, by priority and then by number; a second one those of them
-- that are delivered to a worker alone.
-- The numbers begin with the time, so that they do not go back when the store is emptied.
--@include lane_name now save

-- The only way into a lane. A run that comes back keeps its place, one without a place goes to the end.
-- Says so to every gateway when the lane was empty, with a number that orders such changes.
local function lane_push(run)
  local name = lane_name(run.queue, run.workflow, run.solo)
  if not run.place then
    put(run, 'place', redis.call('INCR', RUN_SEQ) - (tonumber(run.priority) or 0) * 2 ^ 42)
  end
  redis.call('ZADD', lane_key(name), run.place, run.id)
  if redis.call('ZCARD', lane_key(name)) > 1 then return end
  local change = redis.call('INCR', LANE_SEQ)
  if change == 1 then
    change = now * 1000
    redis.call('SET', LANE_SEQ, string.format('%.0f', change))
  end
  redis.call('ZADD', LANES, change, name)
  redis.call('PUBLISH', WAKEUPS, string.format('lane %.0f %s', change, name))
end

-- Takes a run out, and the lane out of the set of non-empty ones with its last run.
local function lane_remove(run)
  local name = lane_name(run.queue, run.workflow, run.solo)
  redis.call('ZREM', lane_key(name), run.id)
  if redis.call('EXISTS', lane_key(name)) == 0 then redis.call('ZREM', LANES, name) end
end
