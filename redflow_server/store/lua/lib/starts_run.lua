-- Whether a wait that was judged means that a run has to be started.
--@include keyed run
local function starts_run(wait)
  local start = wait.start
  local attaches = wait.verdict ~= 'new' or wait.kind ~= 'child' or start.workflow == '' or read_run(start.id) or
    (start.key ~= '' and find_by_key(start.workflow, start.key))
  return not attaches
end
