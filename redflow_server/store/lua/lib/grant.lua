-- Leases a queued run: a new token, the stamp of the session, and a short lease until its receipt is written.
local function grant(run, stamp, secret, delivery_ms, policy)
  lane_remove(run.queue, run.workflow, run.id)
  set_status(run, 'running')
  redis.call('ZADD', LEASES, now + delivery_ms, run.id)
  put(run, 'attempt', (tonumber(run.failures) or 0) + 1)
  put(run, 'deliveries', (tonumber(run.deliveries) or 0) + 1)
  put(run, 'leaseToken', run.id .. '.' .. secret)
  put(run, 'leaseOwner', stamp)
  -- The policy stays with the run: the registry may change, or be gone, when it is needed.
  put(run, 'retryPolicy', policy.retry or nil)
  if not run.startedAt then
    put(run, 'startedAt', now)
    if policy.run_timeout then
      put(run, 'runDeadline', now + tonumber(policy.run_timeout))
      set_deadline(run)
    end
  end
  save(run)
end
