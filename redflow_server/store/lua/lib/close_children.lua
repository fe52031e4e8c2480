-- Runs that one that has ended has started, and that are to end with it.
--@include cancel_child
function close_children(run)
  while not is_full() do
    local child = redis.call('SPOP', children_key(run.id))
    if not child then return end
    cancel_child(child)
  end
  if redis.call('EXISTS', children_key(run.id)) == 1 then put_off('close ' .. run.id) end
end
