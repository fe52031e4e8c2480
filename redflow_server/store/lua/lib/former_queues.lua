-- The queues that runs of a workflow may still wait in, as [queue, left at] pairs: the last eight, each until its lane
-- is empty and a day has passed.
--@include lane_name now
local function former_queues(workflow, queue)
  local kept, names = {}, {}
  local before = workflow and cjson.decode(workflow.formerQueuesJson or '[]') or {}
  if workflow and workflow.queue ~= queue then table.insert(before, 1, {workflow.queue, string.format('%.0f', now)}) end
  for _, former in ipairs(before) do
    local lane, solo = lane_name(former[1], workflow.name), lane_name(former[1], workflow.name, true)
    local needed = now - tonumber(former[2]) < 86400000 or redis.call('EXISTS', lane_key(lane), lane_key(solo)) > 0
    if needed and former[1] ~= queue and #kept < 8 then
      kept[#kept + 1] = former
      names[#names + 1] = former[1]
    end
  end
  return #kept > 0 and cjson.encode(kept) or '[]', names
end
