-- A run's one entry among the deadlines stands at the earliest of its start, run and failing deadlines.
--@include due save
local function set_deadline(run)
  local at = nil
  for _, field in ipairs({'startDeadline', 'runDeadline', 'failingDeadline'}) do
    local one = tonumber(run[field])
    if one and (not at or one < at) then at = one end
  end
  if at and not run.timeoutRequestedAt then due_at(DEADLINES, 'deadlines', at, run.id) else redis.call('ZREM', DEADLINES, run.id) end
end

-- A worker has taken the run up: it can no longer start too late.
local function mark_started(run)
  if not run.startDeadline then return end
  put(run, 'startDeadline', nil)
  set_deadline(run)
end
