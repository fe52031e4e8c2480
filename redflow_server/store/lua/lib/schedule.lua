-- Sets a run aside until a time.
local function schedule(run, at)
  put(run, 'availableAt', at)
  due_at(SCHEDULED, 'scheduled', at, run.id)
end
