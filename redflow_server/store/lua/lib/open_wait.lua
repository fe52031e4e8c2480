-- Writes down that a step waits: its header, the open wait, its timer.
--@include save step waits
local function open_wait(run, wait, target)
  local at = string.format('%.0f', now)
  redis.call('HSET', steps_key(run.id), 's:' .. wait.name, write_header({status = 'waiting', kind = wait.kind,
    seq = wait.seq, attempt = run.attempt, final = '0', startedAt = at, finishedAt = '', size = '0',
    target = wait.kind ~= 'event' and target or '', meta = ''}), 'o:' .. wait.name, '')
  redis.call('HSET', waits_key(run.id), wait.name, write_wait({kind = wait.kind, since = at, deadline = wait.deadline,
    group = wait.group, target = target}))
  if wait.deadline ~= '' then due_at(TIMERS, 'timers', tonumber(wait.deadline), awaiter(run.id, wait.name)) end
  put(run, 'openWaits', (tonumber(run.openWaits) or 0) + 1)
end
