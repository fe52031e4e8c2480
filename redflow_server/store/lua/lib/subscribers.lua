-- The workflows that listen, by name; and those that are registered no more. Of many the set of the registered ones has
-- to do as evidence.
--@include fan_out
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
