-- Starts a run, or answers the one that its idempotency key names.
-- KEYS    prefix
-- ARGS    now run_id workflow queue max_attempts priority typed input input_meta digest available_at key key_ttl_ms mismatch
-- RETURNS created | existing id differs | unknown_workflow | key_reused id
-- EMITS   lane, due
-- REPEAT  yes
-- BATCH   yes
--@include keys now run save index lane due deadline schedule place
local id, workflow, queue, max_attempts, priority, typed = ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6], ARGV[7]
local input, input_meta, digest, available_at = ARGV[8], ARGV[9], ARGV[10], tonumber(ARGV[11])
local key, key_ttl, mismatch = ARGV[12], tonumber(ARGV[13]), ARGV[14]

local function find_by_key()
  local found = redis.call('GET', idempotency_key(workflow, key))
  local run = found and read_run(found)
  if not run or (run.keyExpiresAt and tonumber(run.keyExpiresAt) <= now) then return nil end
  return run
end

local function answer_existing(run)
  local differs = run.inputDigest ~= nil and run.inputDigest ~= digest
  if differs and mismatch == 'reject' then return {'key_reused', run.id} end
  put(run, 'keyExpiresAt', now + key_ttl)
  redis.call('PEXPIRE', idempotency_key(workflow, key), string.format('%.0f', key_ttl + 60000))
  place(run)
  return {'existing', run.id, differs and 1 or 0}
end

local repeated = read_run(id)
if repeated then
  place(repeated)
  return {'created'}
end
local existing = key ~= '' and find_by_key()
if existing then return answer_existing(existing) end

local known = redis.call('HMGET', workflow_key(workflow), 'queue', 'maxAttempts', 'startTimeoutMs')
if queue == '' then queue = known[1] or '' end
if queue == '' then return {'unknown_workflow'} end

redis.call('HSET', data_key(id), 'inputJson', input)
if input_meta ~= '' then redis.call('HSET', data_key(id), 'inputMeta', input_meta) end
local run = {id = id, changed = {}}
put(run, 'workflow', workflow)
put(run, 'queue', queue)
put(run, 'status', available_at and available_at > now and 'scheduled' or 'queued')
put(run, 'attempt', 0)
put(run, 'maxAttempts', max_attempts ~= '' and max_attempts or known[2] or 1)
put(run, 'createdAt', now)
put(run, 'inputDigest', digest)
if priority ~= '0' then put(run, 'priority', priority) end
if typed == '1' then put(run, 'typed', '1') end
if key ~= '' then
  put(run, 'idempotencyKey', key)
  put(run, 'keyExpiresAt', now + key_ttl)
  redis.call('SET', idempotency_key(workflow, key), id, 'PX', string.format('%.0f', key_ttl + 60000))
end
if known[3] then
  put(run, 'startDeadline', math.max(now, available_at or 0) + tonumber(known[3]))
  set_deadline(run)
end
list(run)
if run.status == 'scheduled' then schedule(run, available_at) else lane_push(run) end
save(run)
return {'created'}
