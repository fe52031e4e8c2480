-- Makes a run, for every script that starts one. It was routed, and does not exist yet. Its waits see later events only.
--@include deadline index lane now schedule
local function start_run(start)
  local id, available_at, run = start.id, tonumber(start.available_at), {id = start.id, changed = {}}
  redis.call('HSET', data_key(id), 'inputJson', start.input)
  if start.input_meta ~= '' then redis.call('HSET', data_key(id), 'inputMeta', start.input_meta) end
  put(run, 'workflow', start.workflow)
  put(run, 'queue', start.queue)
  put(run, 'status', available_at and available_at > now and 'scheduled' or 'queued')
  put(run, 'attempt', 0)
  put(run, 'maxAttempts', start.max_attempts)
  put(run, 'createdAt', now)
  put(run, 'inputDigest', start.digest)
  if start.priority ~= '0' then put(run, 'priority', start.priority) end
  if start.typed == '1' or start.is_known then put(run, 'typed', '1') end
  put(run, 'parentRunId', start.parent)
  put(run, 'waiters', start.waiters)
  put(run, 'eventSeq', start.event_seq or redis.call('GET', EVENT_SEQ) or nil)
  if start.key ~= '' then
    put(run, 'idempotencyKey', start.key)
    put(run, 'keyExpiresAt', now + start.key_ttl)
    redis.call('SET', idempotency_key(start.workflow, start.key), id, 'PX', string.format('%.0f', start.key_ttl + 60000))
  end
  if start.start_timeout then put(run, 'startDeadline', math.max(now, available_at or 0) + tonumber(start.start_timeout)) end
  if start.start_timeout then set_deadline(run) end
  list(run)
  if run.status == 'scheduled' then schedule(run, available_at) else lane_push(run) end
  save(run)
  return run
end
