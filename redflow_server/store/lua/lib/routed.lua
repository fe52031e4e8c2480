-- The queue and settings of a run that is to be started; nil when there is no queue for it.
--@include keys
local function routed(start)
  local known = redis.call('HMGET', workflow_key(start.workflow), 'queue', 'maxAttempts', 'startTimeoutMs')
  start.is_known = known[1] and true
  start.queue = start.queue ~= '' and start.queue or known[1] or ''
  if start.queue == '' then return nil end
  start.max_attempts = start.max_attempts ~= '' and start.max_attempts or known[2] or 1
  start.start_timeout = known[3]
  return start
end
