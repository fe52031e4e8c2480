-- Only runs that are to be started are refused when memory is full: then nothing has been written before.
--@include await relief
local function register_waits(run, waits)
  local starts = false
  for _, wait in ipairs(waits) do
    local start = wait.start
    local attaches = wait.verdict ~= 'new' or start.workflow == '' or read_run(start.id) or
      (start.key ~= '' and find_by_key(start.workflow, start.key))
    if not attaches then starts = true end
  end
  if not starts then begin_writes() end
  for _, wait in ipairs(waits) do
    if wait.verdict == 'new' then await(run, wait) end
  end
  put(run, 'acked', '1')
  mark_started(run)
end
