-- Takes a run that is not leased out of where it waits.
--@include lane
local function leave(run)
  redis.call('ZREM', SCHEDULED, run.id)
  redis.call('ZREM', LEASES, run.id)
  lane_remove(run)
end
