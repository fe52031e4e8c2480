-- A wait of whose end nobody will tell: the outbox does, if the run it is for has ended or is gone.
--@include run waits
local function mend_child_wait(run, name, target)
  local child = read_run(target)
  local is_told = redis.call('SADD', awaiters_key(target), awaiter(run.id, name)) == 0
  if not child or ended(child) then
    if redis.call('ZSCORE', OUTBOX, 'wake ' .. target) then return nil end
    put_off('wake ' .. target)
    return 'wait'
  end
  if is_told and child.awaited then return nil end
  put(child, 'awaited', '1')
  save(child)
  return 'awaiter'
end
