-- Asks for a run to end as canceled: at once when no worker has it, else by an order to the worker.
-- KEYS    prefix
-- ARGS    now run_id reason request_id
-- RETURNS accepted | finished | missing
-- EMITS   lane, due, finished, resolved, stop
-- REPEAT  yes
-- BATCH   yes
--@include effects relief
local run = read_run(ARGV[2])

-- The requests that were accepted, each between line ends, which no id has, so that a repeat of one is accepted too.
local function asked_by(run) return run.cancelRequestIds or '\n' end
local is_repeat = run and ARGV[4] ~= '' and string.find(asked_by(run), '\n' .. ARGV[4] .. '\n', 1, true)

if not run then return 'missing' end
if ended(run) then return run.status == 'canceled' and is_repeat and 'accepted' or 'finished' end
begin_writes()
if not given(run.cancelRequestedAt) then
  put(run, 'cancelRequestedAt', now)
  put(run, 'cancelReason', ARGV[3])
end
if ARGV[4] ~= '' and not is_repeat and #asked_by(run) < 1000 then put(run, 'cancelRequestIds', asked_by(run) .. ARGV[4] .. '\n') end
save(run)
if run.leaseToken then
  redis.call('PUBLISH', gateway_channel(gateway_of(run)), 'stop ' .. run.leaseToken .. ' user ' .. ARGV[3])
else
  leave(run)
  finish(run, 'canceled')
end
return 'accepted'
