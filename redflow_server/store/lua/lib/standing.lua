-- The order to stop that stands against a run: reason and message, or nil; and since when.
--@include deadline now run
local function stop_order(run)
  if given(run.cancelRequestedAt) then return 'user', run.cancelReason or '', tonumber(run.cancelRequestedAt) end
  if run.timeoutRequestedAt then return 'timeout', '', tonumber(run.timeoutRequestedAt) end
  return nil
end

-- Renews a lease that its holder listed, and writes the receipt. A holder that ignores an order to stop for longer
-- than the grace is not renewed, so that the lease ends whatever it does.
local function extend(run, lease_ms, grace_ms)
  local reason, message, since = stop_order(run)
  if not reason or now - since <= grace_ms then
    redis.call('ZADD', LEASES, now + lease_ms, run.id)
    put(run, 'acked', '1')
    put(run, 'undelivered', nil)
    mark_started(run)
  end
  return {'held', reason or '', message or '', run.solo and 1 or 0}
end

local function lease_gone(run, token)
  if run and run.endedToken == token then return {'finished'} end
  if not run or run.leaseToken ~= token then return {'lost'} end
  return nil
end
