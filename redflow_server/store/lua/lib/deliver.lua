-- Tells waits of an event on their channel: each takes the oldest one that its run has not had, whichever that is. Of
-- many waits one script tells some, from one registration number on; a loop of every gateway goes on. Those that were
-- registered after the event have seen it in the memory.
--@include effects event_memory
local function wake_wait(member, channel)
  local id, step = awaited_by(member)
  local run = read_run(id)
  -- An event that another one of its race has got on this page has withdrawn it.
  local is_open = run and not ended(run) and redis.call('HEXISTS', waits_key(id), step) == 1
  -- One that takes nothing has cost as much as one that does.
  if not (is_open and take_event(run, step, channel)) then count_effect(0) end
end

local function deliver(number, channel, from)
  local upto = '(' .. number
  while true do
    local waits = redis.call('ZRANGEBYSCORE', event_waits_key(channel), from, upto, 'WITHSCORES', 'LIMIT', 0, 50)
    if #waits == 0 then break end
    for i = 1, #waits, 2 do
      if is_full() then
        redis.call('ZADD', DELIVERIES, waits[i + 1], number .. ' ' .. channel)
        return redis.call('PUBLISH', WAKEUPS, string.format('due outbox %.0f', now))
      end
      wake_wait(waits[i], channel)
      from = '(' .. waits[i + 1]
    end
  end
  redis.call('ZREM', DELIVERIES, number .. ' ' .. channel)
end
