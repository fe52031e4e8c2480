-- Why an item under this token is refused: nil when the token is current, else the answer for its holder.
--@include save
local function refuse_lease(run, token)
  if not run then return {'lost'} end
  if run.leaseToken == token then return nil end
  return run.endedToken == token and {'duplicate', run.endedAs} or {'lost'}
end

local function end_lease(run)
  redis.call('ZREM', LEASES, run.id)
  for _, field in ipairs({'leaseToken', 'leaseOwner', 'acked', 'parked', 'woken'}) do put(run, field, nil) end
end

-- The holder gives the lease back; `ended_as` is what it hears when it repeats the item that did so.
local function hand_in(run, ended_as)
  put(run, 'endedToken', run.leaseToken)
  put(run, 'endedAs', ended_as)
  end_lease(run)
end

-- The lease is taken from its holder, who hears that it is lost.
local function revoke(run)
  put(run, 'endedToken', nil)
  put(run, 'endedAs', nil)
  end_lease(run)
end

-- The gateway whose session holds the lease.
local function gateway_of(run) return string.match(run.leaseOwner or '', '(%S+)$') end
