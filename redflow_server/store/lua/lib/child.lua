-- The run to wait for: one that exists by its id or key, or a new one; or nil, why there is none, and what there is not.
--@include await_cycle keyed place routed start
local function child_of(run, start)
  local found = read_run(start.id)
  if not found and start.key ~= '' then
    found = find_by_key(start.workflow, start.key)
    if found then refresh_key(found, start.key, start.key_ttl) end
  end
  if not found then
    if start.workflow == '' then return nil, 'missing', start.id end
    start.parent = run.id
    if not routed(start) then return nil, 'unknown_workflow', start.workflow end
    return start_run(start)
  end
  place(found)
  local circle = not ended(found) and circle_with(run, found)
  if circle then return nil, circle, found.id end
  return found
end
