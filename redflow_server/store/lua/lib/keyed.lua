-- Idempotency keys: a start with one that was used in its window finds the run of that.
--@include now run save
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
