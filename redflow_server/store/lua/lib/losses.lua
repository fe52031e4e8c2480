-- Where a run goes after a delivery without progress: to its end after too many of them, or losses; else to its lane. If
-- one more would end it, it is delivered alone: so that it ends by a loss of its own, not of another run beside it.
--@include failures save
local MOST_EVER, MOST_FRUITLESS, MISSES_A_LOSS = 50, 100, 5
local function judge(run, max_losses)
  local losses, ever = tonumber(run.losses) or 0, tonumber(run.lossesTotal) or 0
  local fruitless = (tonumber(run.deliveries) or 0) - (tonumber(run.fruitful) or 0)
  if losses <= max_losses and ever <= MOST_EVER and fruitless <= MOST_FRUITLESS then
    local is_last = losses > 0 and losses >= max_losses or ever >= MOST_EVER or fruitless >= MOST_FRUITLESS
    put(run, 'solo', is_last and '1' or nil)
    return 'queued'
  end
  -- In phase failing the failure stays the one that it has failed with.
  if not run.phase then redis.call('HSET', data_key(run.id), 'errorJson', FAILURES.worker_lost) end
  return 'failed'
end

local function lose(run, max_losses)
  put(run, 'losses', (tonumber(run.losses) or 0) + 1)
  put(run, 'lossesTotal', (tonumber(run.lossesTotal) or 0) + 1)
  return judge(run, max_losses)
end

-- Nobody has acknowledged it: so many in a row are a loss, so that a run which kills its worker on receipt ends too.
local function miss(run, max_losses)
  local missed = (tonumber(run.undelivered) or 0) + 1
  put(run, 'undelivered', missed < MISSES_A_LOSS and missed or nil)
  return (missed < MISSES_A_LOSS and judge or lose)(run, max_losses)
end
