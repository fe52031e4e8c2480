-- Numbers the ends of waits, and has the holder of the lease told of them.
--@include lease save
local function number_resolution(run)
  put(run, 'resolutions', (tonumber(run.resolutions) or 0) + 1)
  return string.format('%.0f', run.resolutions)
end

-- The worker has it in memory, at work or parked: it hears of the outcome, unless it is asking just now. A small one goes
-- along; one that does not is read when it is needed.
local TOLD_BYTES = 4096
local function tell_holder(run, name, header, value)
  if run.parked then put(run, 'woken', '1') end
  if run.is_asking then return end
  local message = 'resolved ' .. run.leaseToken .. ' ' .. lp(name)
  if #value <= TOLD_BYTES then message = message .. lp(header) .. value end
  redis.call('PUBLISH', gateway_channel(gateway_of(run)), message)
end
