-- Moves the runs that have become due to their lanes.
-- KEYS    prefix
-- ARGS    now limit
-- RETURNS promoted next_at; next_at false when nothing is scheduled
-- EMITS   lane, due, finished, resolved, stop
-- REPEAT  yes
--@include relief settle
local promoted = 0
begin_writes()
for _, id in ipairs(redis.call('ZRANGEBYSCORE', SCHEDULED, '-inf', now, 'LIMIT', 0, tonumber(ARGV[2]))) do
  redis.call('ZREM', SCHEDULED, id)
  local run = read_run(id)
  if run and run.status == 'scheduled' then
    settle(run, 'queued')
    promoted = promoted + 1
  end
end
return {promoted, next_due(SCHEDULED)}
