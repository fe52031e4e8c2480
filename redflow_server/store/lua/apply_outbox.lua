-- Applies what the ends of runs left to be done to others, the oldest first.
-- KEYS    prefix
-- ARGS    now limit
-- RETURNS applied next_at; next_at false when nothing is left
-- EMITS   lane, due, finished, resolved, stop
-- REPEAT  yes
--@include effects relief
local entries = redis.call('ZRANGE', OUTBOX, 0, tonumber(ARGV[2]) - 1)
begin_writes()
for _, entry in ipairs(entries) do
  redis.call('ZREM', OUTBOX, entry)
  local what, id = string.match(entry, '^(%S+) (.*)$')
  if what == 'wake' then wake_awaiters(id) end
  if what == 'cancel' then cancel_child(id) end
  local run = (what == 'withdraw' or what == 'close') and read_run(id)
  if run and ended(run) and what == 'withdraw' then withdraw_waits(run) end
  if run and ended(run) and what == 'close' then close_children(run) end
end
return {#entries, next_due(OUTBOX)}
