-- Sets a run aside until a time.
--@include due save
local function schedule(run, at)
  put(run, 'availableAt', at)
  due_at(SCHEDULED, 'scheduled', at, run.id)
end
