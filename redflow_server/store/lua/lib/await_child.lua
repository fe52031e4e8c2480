-- Registers a wait for the end of a run, which may have to be started, or be over.
--@include child open_wait outcome resolve
local function await_child(run, wait)
  local child, refused, missed = child_of(run, wait.start)
  local target = child and child.id or refused ~= 'unknown_workflow' and missed or ''
  open_wait(run, wait, target)
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
