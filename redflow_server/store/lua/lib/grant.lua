-- Leases queued runs of one lane: a token for each, the stamp of the session, and the time of a lease.
--@include deadline index_all now
local function grant(runs, lane, stamp, secret, lease_ms)
  local ids, ends = set_status_of_all(runs, 'running'), {}
  redis.call('ZREM', lane.key, unpack(ids))
  for _, run in ipairs(runs) do
    ends[#ends + 1], ends[#ends + 2] = now + lease_ms, run.id
    put(run, 'attempt', (tonumber(run.failures) or 0) + 1)
    put(run, 'deliveries', (tonumber(run.deliveries) or 0) + 1)
    put(run, 'leaseToken', run.id .. '.' .. secret)
    put(run, 'leaseOwner', stamp)
    -- The policy stays with the run: the registry may change, or be gone, when it is needed.
    put(run, 'retryPolicy', lane.retry or nil)
    put(run, 'handlerMs', lane.handler_ms or nil)
    if not run.startedAt then
      put(run, 'startedAt', now)
      if lane.run_timeout then
        put(run, 'runDeadline', now + tonumber(lane.run_timeout))
        set_deadline(run)
      end
    end
    save(run)
  end
  redis.call('ZADD', LEASES, unpack(ends))
end
