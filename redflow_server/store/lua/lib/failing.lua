-- A run that has failed and has a failure handler stays open until that has run: it is in phase `failing`, with counts
-- and a deadline of its own. False when there is nothing to wait for.
--@include deadline now progress
local function begin_failing(run)
  if run.phase or not run.handlerMs then return false end
  put(run, 'phase', 'failing')
  put(run, 'failingDeadline', now + tonumber(run.handlerMs))
  progress(run)
  for _, field in ipairs({'lossesTotal', 'runDeadline', 'startDeadline', 'timeoutRequestedAt'}) do put(run, field, nil) end
  set_deadline(run)
  return true
end
