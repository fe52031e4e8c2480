-- A run's one entry among the deadlines stands at the earlier of its start deadline and its run deadline.
local function set_deadline(run)
  local start, whole = tonumber(run.startDeadline), tonumber(run.runDeadline)
  local at = start and whole and math.min(start, whole) or start or whole
  if at and not run.timeoutRequestedAt then due_at(DEADLINES, 'deadlines', at, run.id) else redis.call('ZREM', DEADLINES, run.id) end
end

-- A worker has taken the run up: it can no longer start too late.
local function mark_started(run)
  if not run.startDeadline then return end
  put(run, 'startDeadline', nil)
  set_deadline(run)
end
