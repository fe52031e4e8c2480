-- Takes a workflow out of the registry.
--@include forget_schedule workflow
local function unsubscribe(workflow)
  for _, event in ipairs(events_of(workflow)) do redis.call('SREM', event_workflows_key(event), workflow.name) end
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
