-- A workflow's registry entry as a table; nil when there is none.
--@include keys
local function read_workflow(name)
  local flat = redis.call('HGETALL', workflow_key(name))
  if #flat == 0 then return nil end
  local workflow = {name = name}
  for i = 1, #flat, 2 do workflow[flat[i]] = flat[i + 1] end
  return workflow
end

local function events_of(workflow) return cjson.decode(workflow and workflow.eventsJson or '[]') end

local function forget_owner_without_workflows(owner)
  if redis.call('EXISTS', owner_workflows_key(owner)) == 0 then redis.call('UNLINK', owner_builds_key(owner)) end
end
