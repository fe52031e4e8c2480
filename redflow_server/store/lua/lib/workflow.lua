-- A workflow's registry entry as a table; nil when there is none.
local function read_workflow(name)
  local flat = redis.call('HGETALL', workflow_key(name))
  if #flat == 0 then return nil end
  local workflow = {name = name}
  for i = 1, #flat, 2 do workflow[flat[i]] = flat[i + 1] end
  return workflow
end

local function events_of(workflow) return cjson.decode(workflow and workflow.eventsJson or '[]') end

local function unsubscribe(workflow)
  for _, event in ipairs(events_of(workflow)) do redis.call('SREM', event_workflows_key(event), workflow.name) end
end

local function forget_owner_without_workflows(owner)
  if redis.call('EXISTS', owner_workflows_key(owner)) == 0 then redis.call('UNLINK', owner_builds_key(owner)) end
end

-- `queue` is the one of the definition that takes its place. Runs of events that were emitted before, and are yet to be
-- started, are started in the one that was in force then.
local function forget_definition(workflow, queue)
  unsubscribe(workflow)
  local is_left = workflow.queue and workflow.queue ~= queue
  for _, event in ipairs(is_left and redis.call('ZRANGE', FAN_OUTS, 0, 99) or {}) do
    redis.call('HSETNX', emitted_key(event), 'queue:' .. workflow.name, workflow.queue)
  end
  redis.call('UNLINK', workflow_key(workflow.name))
  redis.call('SREM', WORKFLOWS, workflow.name)
  redis.call('SREM', owner_workflows_key(workflow.owner or ''), workflow.name)
end

local function forget_workflow(workflow)
  for _, id in ipairs(schedules_of(workflow)) do forget_schedule(id) end
  forget_definition(workflow)
end
