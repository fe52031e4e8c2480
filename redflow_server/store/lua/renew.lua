-- Renews the leases that a session lists, and moves to it those that an earlier session of its worker had.
-- KEYS    prefix
-- ARGS    now session epoch gateway lease_ms grace_ms ...leases(run_id token count names)
-- RETURNS one for each lease: held reason message solo over unknown | moved | finished | lost; of the waits that the worker takes
--         to be open, `over` are those that are not, and `unknown` those that the store has lost
-- EMITS   due
-- REPEAT  yes
--@include relief standing step
local session, epoch, gateway = ARGV[2], tonumber(ARGV[3]), ARGV[4]
local lease_ms, grace_ms = tonumber(ARGV[5]), tonumber(ARGV[6])
local stamp = session .. ' ' .. ARGV[3] .. ' ' .. gateway
local standings = {}

-- A later session of the worker has the lease; what this one says of it is old.
local function moved_on(run)
  local owner_epoch = string.match(run.leaseOwner or '', '^%S+ (%d+) ')
  return run.leaseOwner ~= stamp and (tonumber(owner_epoch) or -1) >= epoch
end

-- What became of the waits that the arguments name.
local function look_at_waits(run, first, count)
  local over, unknown = {}, {}
  for i = first, first + count - 1 do
    local header = redis.call('HGET', steps_key(run.id), 's:' .. ARGV[i])
    if not header then unknown[#unknown + 1] = ARGV[i] end
    if header and read_header(header).status ~= 'waiting' then over[#over + 1] = ARGV[i] end
  end
  return over, unknown
end

begin_writes()
local i = 7
while i <= #ARGV do
  local run, count = read_run(ARGV[i]), tonumber(ARGV[i + 2])
  local answer = lease_gone(run, ARGV[i + 1])
  if not answer and moved_on(run) then answer = {'moved'} end
  if not answer then
    put(run, 'leaseOwner', stamp)
    answer = extend(run, lease_ms, grace_ms)
    save(run)
    if count > 0 then answer[5], answer[6] = look_at_waits(run, i + 3, count) end
  end
  standings[#standings + 1] = answer
  i = i + 3 + count
end
return standings
