-- Ends the waits whose time has come.
-- KEYS    prefix
-- ARGS    now limit
-- RETURNS fired next_at; next_at false when no wait has a deadline
-- EMITS   lane, due, finished, resolved, stop
-- REPEAT  yes
--@include effects relief time_out
local fired = 0
begin_writes()
for _, member in ipairs(redis.call('ZRANGEBYSCORE', TIMERS, '-inf', now, 'LIMIT', 0, tonumber(ARGV[2]))) do
  redis.call('ZREM', TIMERS, member)
  local id, step = awaited_by(member)
  local run = read_run(id)
  local entry = run and redis.call('HGET', waits_key(id), step)
  local wait = entry and read_wait(entry)
  local deadline = wait and tonumber(wait.deadline)
  if deadline and deadline > now then
    -- It stood at the time of another wait.
    redis.call('ZADD', TIMERS, deadline, member)
  elseif deadline then
    fired = fired + 1
    if ended(run) then withdraw(run, step, wait) else time_out(run, step, wait) end
  end
end
return {fired, next_due(TIMERS)}
