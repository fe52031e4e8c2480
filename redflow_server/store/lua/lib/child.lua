-- The run that a step names: one that exists by its id or key, or a new one; or nil, why there is none, and what there is
-- not.
--@include await_cycle keyed place routed start
local function named_run(run, start)
  local found = read_run(start.id)
  if not found and start.key ~= '' then
    found = find_by_key(start.workflow, start.key)
    if found then refresh_key(found, start.key, start.key_ttl) end
  end
  if found then
    place(found)
    return found
  end
  if start.workflow == '' then return nil, 'missing', start.id end
  start.parent = run.id
  if not routed(start) then return nil, 'unknown_workflow', start.workflow end
  return start_run(start)
end

-- The run to wait for. None that waits for this one.
local function child_of(run, start)
  local found, why, what = named_run(run, start)
  if not found then return nil, why, what end
  local circle = not ended(found) and circle_with(run, found)
  if circle then return nil, circle, found.id end
  return found
end
