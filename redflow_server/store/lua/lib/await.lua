-- Registers a wait that was judged new, and starts its run; a wait for a run that has ended, or cannot be, is over.
--@include child outcome resolve
local function await(run, wait)
  local child, refused, missed = child_of(run, wait.start)
  local target, at = child and child.id or refused ~= 'unknown_workflow' and missed or '', string.format('%.0f', now)
  redis.call('HSET', steps_key(run.id), 's:' .. wait.name, write_header({status = 'waiting', kind = 'child',
    seq = wait.seq, attempt = run.attempt, final = '0', startedAt = at, finishedAt = '', size = '0', target = target,
    meta = ''}), 'o:' .. wait.name, '')
  redis.call('HSET', waits_key(run.id), wait.name, table.concat({'child', at, target}, '|'))
  put(run, 'openWaits', (tonumber(run.openWaits) or 0) + 1)
  if refused then return resolve(run, wait.name, failed_with(refused, missed)) end
  if ended(child) and not is_full() then
    local outcome = outcome_of(child)
    count_effect(#outcome.value)
    return resolve(run, wait.name, outcome)
  end
  redis.call('SADD', awaiters_key(target), awaiter(run.id, wait.name))
  if ended(child) then return put_off('wake ' .. target) end
  put(child, 'awaited', '1')
  save(child)
end
