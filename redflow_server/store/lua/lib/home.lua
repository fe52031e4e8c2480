-- Where a run goes that is taken from a worker without having made any progress there: a parked one whose waits are all
-- open goes on waiting.
--@include save
local function home_of(run)
  return run.parked and not run.woken and run.openWaits and 'waiting' or 'queued'
end
