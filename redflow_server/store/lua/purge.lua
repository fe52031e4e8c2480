-- Removes runs that ended longer ago than they are kept, with every trace of them. A run whose idempotency key is
-- still in its window stays until that has closed, unless the key was made for a step, whose record has the outcome; and
-- one whose end others have yet to hear of until they have.
-- KEYS    prefix
-- ARGS    now limit ...retentions(status keep_ms)
-- RETURNS purged seen
-- EMITS   due
-- REPEAT  yes
--@include index relief run waits
local limit, purged, seen = tonumber(ARGV[2]), 0, 0

-- Until when a run that has ended is needed; what it owes to others is left to the outbox.
local function needed_until(run)
  local of_step = run.parentRunId and 'stepwf:' .. lp(run.parentRunId) .. ':'
  local is_given = not of_step or string.sub(run.idempotencyKey or '', 1, #of_step) ~= of_step
  local needed = is_given and tonumber(run.keyExpiresAt) or 0
  for word, key in pairs({wake = awaiters_key(run.id), withdraw = waits_key(run.id), close = children_key(run.id)}) do
    if redis.call('EXISTS', key) == 1 then
      put_off(word .. ' ' .. run.id)
      needed = math.max(needed, now + 60000)
    end
  end
  return needed
end

local function purge(run)
  local pointer = run.idempotencyKey and idempotency_key(run.workflow, run.idempotencyKey)
  if pointer and redis.call('GET', pointer) == run.id then redis.call('UNLINK', pointer) end
  unlist(run)
  redis.call('UNLINK', run_key(run.id), data_key(run.id), steps_key(run.id))
  purged = purged + 1
end

begin_writes()
for i = 3, #ARGV, 2 do
  local finished, keep_ms = finished_key(ARGV[i]), tonumber(ARGV[i + 1])
  local old = redis.call('ZRANGEBYSCORE', finished, '-inf', now - keep_ms, 'LIMIT', 0, math.max(0, limit - seen))
  for _, id in ipairs(old) do
    seen = seen + 1
    local run = read_run(id)
    local kept_until = run and run.status == ARGV[i] and needed_until(run) or 0
    if kept_until > now then
      redis.call('ZADD', finished, kept_until - keep_ms, id)
    else
      redis.call('ZREM', finished, id)
      if run and run.status == ARGV[i] then purge(run) end
    end
  end
end
return {purged, seen}
