-- Hands a lease back at no cost in attempts. On a gateway's own account only if the lease carries its stamp.
-- KEYS    prefix
-- ARGS    now run_id token stamp counts delay_ms steps_recorded max_losses
-- RETURNS ok status | duplicate status | steps_missing | moved | lost
-- EMITS   lane, due, finished, resolved, stop
-- REPEAT  yes
-- BATCH   yes
-- ORDER   last
--@include home losses relief settle
local run = read_run(ARGV[2])
-- `counts` is what the delivery was: loss, undelivered, rejected, or nothing of these.
local stamp, counts, delay_ms, max_losses = ARGV[4], ARGV[5], tonumber(ARGV[6]), tonumber(ARGV[8])
local lost = refuse_lease(run, ARGV[3])
if lost then return lost end
if stamp ~= '' and run.leaseOwner ~= stamp then return {'moved'} end
if counts == 'undelivered' and run.acked then return {'moved'} end
if (tonumber(run.stepsDone) or 0) < tonumber(ARGV[7]) then return {'steps_missing'} end

begin_writes()
local wanted = home_of(run)
if counts == 'rejected' then
  put(run, 'fruitful', (tonumber(run.fruitful) or 0) + 1)
elseif counts == 'undelivered' then
  wanted = miss(run, max_losses)
elseif not run.parked then
  wanted = (counts == 'loss' and lose or judge)(run, max_losses)
end
if wanted == 'queued' and delay_ms > 0 then wanted = 'scheduled' end
-- Taken back by a gateway, the lease is lost to its holder: what that one still sends was not taken.
if stamp ~= '' then revoke(run) end
return {'ok', settle(run, wanted, now + delay_ms)}
