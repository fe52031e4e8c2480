-- Waits that come to be in a race late: when they are open already, or when it is decided.
--@include step waits
local function join_race(run, wait)
  local open = read_wait(redis.call('HGET', waits_key(run.id), wait.name))
  if wait.group == '' or open.group == wait.group then return end
  open.group = wait.group
  redis.call('HSET', waits_key(run.id), wait.name, write_wait(open))
end

local function lose_at_once(run, wait)
  local at = string.format('%.0f', now)
  redis.call('HSET', steps_key(run.id), 's:' .. wait.name, write_header({status = 'withdrawn', kind = wait.kind,
    seq = wait.seq, attempt = run.attempt, final = '0', startedAt = at, finishedAt = at, size = '0', meta = ''}),
    'o:' .. wait.name, '')
end
