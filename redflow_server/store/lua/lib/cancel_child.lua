-- Ends a run that nobody needs any more: its parent has ended, and no other run awaits it.
--@include finish lease leave run waits
local function cancel_child(id)
  if is_full() then return put_off('cancel ' .. id) end
  local run = read_run(id)
  if not run or ended(run) or given(run.cancelRequestedAt) or redis.call('EXISTS', awaiters_key(id)) == 1 then return end
  count_effect(0)
  put(run, 'cancelRequestedAt', now)
  put(run, 'cancelReason', 'no run needs it any more')
  if run.leaseToken then
    save(run)
    redis.call('PUBLISH', gateway_channel(gateway_of(run)), 'stop ' .. run.leaseToken .. ' parent ' .. run.cancelReason)
  else
    leave(run)
    finish(run, 'canceled')
  end
end
