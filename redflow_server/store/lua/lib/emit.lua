-- Emits an event: all runs of its subscribers, or none. What one script cannot start stands on record, and a loop of
-- every gateway goes on with it. An event is kept for as long as a repeat of it, by its id or key, has to be answered.

-- The event as it was emitted before; or nil.
local function emitted_before(event)
  local id = event.key ~= '' and redis.call('GET', event_key_key(event.name, event.key)) or event.id
  local stored = redis.call('HMGET', emitted_key(id), 'runIds', 'expiresAt')
  if not stored[1] or tonumber(stored[2]) <= now then return nil end
  return {id = id, run_ids = stored[1]}
end

-- Its window counts anew with each repeat.
local function keep_emitted(event, id)
  redis.call('HSET', emitted_key(id), 'expiresAt', now + event.key_ttl)
  local keep_ms = string.format('%.0f', event.key_ttl + 60000)
  if not redis.call('ZSCORE', FAN_OUTS, id) then redis.call('PEXPIRE', emitted_key(id), keep_ms) end
  if event.key ~= '' then redis.call('SET', event_key_key(event.name, event.key), id, 'PX', keep_ms) end
end

-- Leaves the subscribers to the loop, in parts of what one script may start.
local function leave_to_fan_out(event, workflows, size)
  local key, parts = emitted_key(event.id), math.ceil(#workflows / size)
  for part = 1, parts do
    local names = {unpack(workflows, (part - 1) * size + 1, math.min(part * size, #workflows))}
    redis.call('HSET', key, 'part:' .. part, cjson.encode(names))
  end
  redis.call('HSET', key, 'payload', event.payload, 'meta', event.meta, 'digest', event.digest, 'availableAt',
    event.available_at, 'part', 1, 'parts', parts)
  due_at(FAN_OUTS, 'outbox', now, event.id)
end

-- The workflows that listen, by name; and those that are registered no more. Of many the set of the registered ones has
-- to do as evidence.
local function subscribers_of(event)
  local key = event_workflows_key(event.name)
  local gone, listed, workflows = redis.call('SDIFF', key, WORKFLOWS), redis.call('SINTER', key, WORKFLOWS), {}
  table.sort(listed)
  if #listed > FAN_OUT_RUNS then return listed, gone end
  for _, workflow in ipairs(listed) do
    local is_there = redis.call('EXISTS', workflow_key(workflow)) == 1
    table.insert(is_there and workflows or gone, workflow)
  end
  return workflows, gone
end

local function emit(event)
  local before = emitted_before(event)
  if before then
    keep_emitted(event, before.id)
    return before.id, before.run_ids, before.id == event.id and 1 or 0
  end
  local workflows, gone = subscribers_of(event)
  local size, run_ids = slice_of(event.payload), subscriber_ids(event.id, workflows)
  redis.call('HSET', emitted_key(event.id), 'name', event.name, 'runIds', run_ids)
  for _, workflow in ipairs(gone) do redis.call('SREM', event_workflows_key(event.name), workflow) end
  if #workflows <= size then
    for _, workflow in ipairs(workflows) do start_subscriber(event, workflow, '') end
  else
    leave_to_fan_out(event, workflows, size)
  end
  keep_emitted(event, event.id)
  return event.id, run_ids, 1
end
