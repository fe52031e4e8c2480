-- Makes a run, for every script that starts one: a repeat of its id or key finds it instead.
local function find_by_key(workflow, key)
  local found = redis.call('GET', idempotency_key(workflow, key))
  local run = found and read_run(found)
  if not run or (run.keyExpiresAt and tonumber(run.keyExpiresAt) <= now) then return nil end
  return run
end

-- The key's window counts anew.
local function refresh_key(run, key, key_ttl)
  put(run, 'keyExpiresAt', now + key_ttl)
  redis.call('PEXPIRE', idempotency_key(run.workflow, key), string.format('%.0f', key_ttl + 60000))
end

-- The queue and settings of a run that is to be started; nil when there is no queue for it.
local function routed(start)
  local known = redis.call('HMGET', workflow_key(start.workflow), 'queue', 'maxAttempts', 'startTimeoutMs')
  start.queue = start.queue ~= '' and start.queue or known[1] or ''
  if start.queue == '' then return nil end
  start.max_attempts = start.max_attempts ~= '' and start.max_attempts or known[2] or 1
  start.start_timeout = known[3]
  return start
end

-- Writes a run that was routed and does not exist yet.
local function start_run(start)
  local id, available_at = start.id, tonumber(start.available_at)
  redis.call('HSET', data_key(id), 'inputJson', start.input)
  if start.input_meta ~= '' then redis.call('HSET', data_key(id), 'inputMeta', start.input_meta) end
  local run = {id = id, changed = {}}
  put(run, 'workflow', start.workflow)
  put(run, 'queue', start.queue)
  put(run, 'status', available_at and available_at > now and 'scheduled' or 'queued')
  put(run, 'attempt', 0)
  put(run, 'maxAttempts', start.max_attempts)
  put(run, 'createdAt', now)
  put(run, 'inputDigest', start.digest)
  if start.priority ~= '0' then put(run, 'priority', start.priority) end
  if start.typed == '1' then put(run, 'typed', '1') end
  put(run, 'parentRunId', start.parent)
  if start.key ~= '' then
    put(run, 'idempotencyKey', start.key)
    put(run, 'keyExpiresAt', now + start.key_ttl)
    redis.call('SET', idempotency_key(start.workflow, start.key), id, 'PX', string.format('%.0f', start.key_ttl + 60000))
  end
  if start.start_timeout then
    put(run, 'startDeadline', math.max(now, available_at or 0) + tonumber(start.start_timeout))
    set_deadline(run)
  end
  list(run)
  if run.status == 'scheduled' then schedule(run, available_at) else lane_push(run) end
  save(run)
  return run
end
