-- An open wait that nobody needs any more is over without an outcome; a run that only it waited for ends.
--@include cancel_child close_wait
local function release_child(run, wait)
  local is_own = wait.kind == 'child' and redis.call('HGET', run_key(wait.target), 'parentRunId') == run.id
  if is_own then cancel_child(wait.target) end
end

local function withdraw(run, name, wait)
  close_wait(run, name, wait)
  local step = read_header(redis.call('HGET', steps_key(run.id), 's:' .. name))
  step.status, step.finishedAt = 'withdrawn', string.format('%.0f', now)
  redis.call('HSET', steps_key(run.id), 's:' .. name, write_header(step))
  release_child(run, wait)
end

-- The other waits of a race that is decided. How many there were.
local function withdraw_rivals(run, group)
  local entries, count = redis.call('HGETALL', waits_key(run.id)), 0
  for i = 1, #entries, 2 do
    local rival = read_wait(entries[i + 1])
    if rival.group == group then
      withdraw(run, entries[i], rival)
      count = count + 1
    end
  end
  return count
end
