-- Waits for the end of runs, as steps. A wait comes as arguments:
-- name seq child_id workflow queue max_attempts priority input input_meta digest key key_ttl_ms
local WAIT_ARGS, MAX_FOLLOWED = 12, 1000
local function wait_at(arguments, i)
  local name, seq, id, workflow, queue, max_attempts, priority, input, input_meta, digest, key, key_ttl =
    unpack(arguments, i, i + WAIT_ARGS - 1)
  return {name = name, seq = seq, start = {id = id, workflow = workflow, queue = queue, max_attempts = max_attempts,
    priority = priority, typed = '1', input = input, input_meta = input_meta, digest = digest, available_at = '',
    key = key, key_ttl = tonumber(key_ttl)}}
end

local function targets_of(id, follow)
  for _, entry in ipairs(redis.call('HVALS', waits_key(id))) do follow(read_wait(entry).target) end
end

local function awaiters_of(id, follow)
  for _, member in ipairs(redis.call('SMEMBERS', awaiters_key(id))) do follow((awaited_by(member))) end
end

-- Whether waits lead from one run to another, followed one way; nil when there are too many to say.
local function leads(from, to, count, key_of, next_of)
  local seen, runs, followed = {[from] = true}, {from}, 0
  local function follow(id)
    if not seen[id] then seen[id], runs[#runs + 1] = true, id end
  end
  for _, at in ipairs(runs) do
    if at == to then return true end
    followed = followed + redis.call(count, key_of(at))
    if followed > MAX_FOLLOWED then return nil end
    next_of(at, follow)
  end
  return false
end

-- Whether a run is awaited, over however many others, by the one that it would wait for. Mostly nobody awaits it. Where
-- there are too many waits to follow either way it is taken to be: it fails, rather than that both wait for ever.
local function is_awaited_by(run, child)
  if run.id == child.id then return true end
  if not run.awaited or not child.openWaits then return false end
  local found = leads(run.id, child.id, 'SCARD', awaiters_key, awaiters_of)
  if found == nil then found = leads(child.id, run.id, 'HLEN', waits_key, targets_of) end
  return found ~= false
end

-- The run to wait for: one that exists by its id or key, or a new one; or nil, why there is none, and its id.
local function child_of(run, start)
  local found = read_run(start.id)
  if not found and start.key ~= '' then
    found = find_by_key(start.workflow, start.key)
    if found then refresh_key(found, start.key, start.key_ttl) end
  end
  if not found then
    if start.workflow == '' then return nil, 'missing', start.id end
    start.parent = run.id
    if not routed(start) then return nil, 'unknown_workflow', start.id end
    return start_run(start)
  end
  place(found)
  if ended(found) or not is_awaited_by(run, found) then return found end
  return nil, 'await_cycle', found.id
end
