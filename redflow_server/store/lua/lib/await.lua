-- Registers a wait that was judged new: sets its timer, starts its run, looks for its event. One that has its outcome
-- already, or cannot have one, is over at once.
--@include await_child event_memory open_wait
local function await_event(run, wait)
  open_wait(run, wait, wait.target)
  if take_event(run, wait.name, wait.target) then return end
  redis.call('ZADD', event_waits_key(wait.target), redis.call('INCR', EVENT_SEQ), awaiter(run.id, wait.name))
end

local function await(run, wait)
  if wait.kind == 'child' then return await_child(run, wait) end
  if wait.kind == 'event' then return await_event(run, wait) end
  open_wait(run, wait, wait.target)
  if wait.kind == 'timer' and tonumber(wait.deadline) <= now then resolve(run, wait.name, NOTHING) end
end
