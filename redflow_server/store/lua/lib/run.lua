-- A run's record as a table, with its id; nil when there is none that makes sense.
--@include keys
local function read_run(id)
  local flat = redis.pcall('HGETALL', run_key(id))
  if flat.err or #flat == 0 then return nil end
  local run = {id = id, changed = {}}
  for i = 1, #flat, 2 do run[flat[i]] = flat[i + 1] end
  if not (run.status and run.workflow and run.queue) then return nil end
  return run
end

local ENDS = {succeeded = true, failed = true, canceled = true}
local function ended(run) return ENDS[run.status] == true end

-- Foreign records carry empty fields where ours carry none.
local function given(value) return value ~= nil and value ~= '' end
