-- Ends a run, for every script: nothing else writes a terminal status. The caller has taken it out of its place, and has
-- written its output or failure.
--@include index now
local ENDED_WITHOUT = {'availableAt', 'place', 'waiters', 'losses', 'undelivered', 'solo', 'fruitful', 'runDeadline', 'startDeadline',
  'timeoutRequestedAt', 'retryPolicy', 'stepsBytes', 'typed', 'placedAt', 'phase', 'failingDeadline', 'handlerMs',
  'openWaits', 'awaited', 'eventSeq', 'resolutions', 'cursors', 'children'}
-- What its end means for others: in effects.lua, which every script that ends runs includes too.
local withdraw_waits, close_children, wake_awaiters

local function tell_waiters(run)
  for gateway_id in string.gmatch(run.waiters, '%S+') do
    redis.call('PUBLISH', gateway_channel(gateway_id), 'finished ' .. run.id)
  end
end

local function finish(run, status)
  if run.runDeadline or run.startDeadline or run.failingDeadline then redis.call('ZREM', DEADLINES, run.id) end
  if run.waiters then tell_waiters(run) end
  if run.cursors then redis.call('DEL', cursors_key(run.id)) end
  local has_waits, has_children, is_awaited = run.openWaits, run.children, run.awaited
  if run.phase and not run.failureHandler then put(run, 'failureHandler', 'not_run') end
  set_status(run, status)
  put(run, 'finishedAt', math.max(now, tonumber(run.startedAt) or 0))
  for _, field in ipairs(ENDED_WITHOUT) do put(run, field, nil) end
  redis.call('ZADD', finished_key(status), run.finishedAt, run.id)
  save(run)
  if has_waits then withdraw_waits(run) end
  if has_children then close_children(run) end
  if is_awaited then wake_awaiters(run.id) end
end
