-- What a worker sends under a lease shows that it has the run, and that its handler is at work.
--@include deadline
local function take_up(run)
  put(run, 'acked', '1')
  put(run, 'parked', nil)
  put(run, 'woken', nil)
  mark_started(run)
end
