-- What the end of a run means for others: runs that await it go on, runs that only it awaits end too.
--@include close_children outcome resolve withdraw

-- Of a run that has ended, which may have thousands of open waits.
function withdraw_waits(run)
  local waits = is_full() and {} or redis.call('HRANDFIELD', waits_key(run.id), MAX_EFFECTS, 'WITHVALUES')
  for i = 1, #waits, 2 do
    if is_full() then break end
    count_effect(0)
    withdraw(run, waits[i], read_wait(waits[i + 1]))
  end
  if redis.call('EXISTS', waits_key(run.id)) == 1 then put_off('withdraw ' .. run.id) end
end

-- Of a run that has ended, or does not exist any more.
function wake_awaiters(id)
  local run = read_run(id)
  if run and not ended(run) then return end
  local outcome = run and outcome_of(run) or failed_with('missing', id)
  while not is_full() do
    local member = redis.call('SPOP', awaiters_key(id))
    if not member then return end
    count_effect(#outcome.value)
    local parent, step = awaited_by(member)
    resolve(read_run(parent), step, outcome)
  end
  if redis.call('EXISTS', awaiters_key(id)) == 1 then put_off('wake ' .. id) end
end
