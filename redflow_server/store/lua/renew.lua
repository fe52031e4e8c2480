-- Renews the leases that a session lists, and moves to it those that an earlier session of its worker had.
-- KEYS    prefix
-- ARGS    now session epoch gateway lease_ms grace_ms ...leases(run_id token)
-- RETURNS one for each lease: held reason message | moved | finished | lost
-- EMITS   due
-- REPEAT  yes
--@include relief standing
local session, epoch, gateway = ARGV[2], tonumber(ARGV[3]), ARGV[4]
local lease_ms, grace_ms = tonumber(ARGV[5]), tonumber(ARGV[6])
local stamp = session .. ' ' .. ARGV[3] .. ' ' .. gateway
local standings = {}

-- A later session of the worker has the lease; what this one says of it is old.
local function moved_on(run)
  local owner_epoch = string.match(run.leaseOwner or '', '^%S+ (%d+) ')
  return run.leaseOwner ~= stamp and (tonumber(owner_epoch) or -1) >= epoch
end

begin_writes()
for i = 7, #ARGV, 2 do
  local run = read_run(ARGV[i])
  local answer = lease_gone(run, ARGV[i + 1])
  if not answer and moved_on(run) then answer = {'moved'} end
  if not answer then
    put(run, 'leaseOwner', stamp)
    answer = extend(run, lease_ms, grace_ms)
    save(run)
  end
  standings[#standings + 1] = answer
end
return standings
