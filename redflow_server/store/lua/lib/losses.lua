-- Counts a worker that was lost with the run. Returns where the run goes: back to its lane, or to its end when there
-- were too many since its last progress, or in all.
--@include failures save
local function lose(run, max_losses)
  put(run, 'losses', (tonumber(run.losses) or 0) + 1)
  put(run, 'lossesTotal', (tonumber(run.lossesTotal) or 0) + 1)
  if run.losses <= max_losses and run.lossesTotal <= 50 then return 'queued' end
  -- In phase failing the failure stays the one that it has failed with.
  if not run.phase then redis.call('HSET', data_key(run.id), 'errorJson', FAILURES.worker_lost) end
  return 'failed'
end

-- Counts a delivery that no worker acknowledged: five in a row are one loss, so that a run which kills its worker on
-- receipt comes to an end too.
local function miss(run, max_losses)
  local missed = (tonumber(run.undelivered) or 0) + 1
  put(run, 'undelivered', missed < 5 and missed or nil)
  return missed < 5 and 'queued' or lose(run, max_losses)
end
