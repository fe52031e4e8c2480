-- Fails the runs of a workflow that nobody has registered, in a queue that a worker asked for by name. Runs that were
-- started through a definition wait: their worker is on its way.
-- KEYS    prefix
-- ARGS    now queue workflow grace_ms limit
-- RETURNS failed left
-- EMITS   finished
-- REPEAT  yes
--@include keys now run save index lane due failures finish relief
local queue, workflow, grace_ms, limit = ARGV[2], ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])
if redis.call('EXISTS', workflow_key(workflow)) == 1 then return {0, 0} end
local failed = 0
begin_writes()
for _, id in ipairs(redis.call('ZRANGE', lane_key(lane_name(queue, workflow)), 0, limit - 1)) do
  local run = read_run(id)
  local here = run and run.status == 'queued' and run.queue == queue and run.workflow == workflow
  if here and not run.typed and now - (tonumber(run.createdAt) or 0) >= grace_ms then
    lane_remove(queue, workflow, id)
    put(run, 'attempt', 1)
    redis.call('HSET', data_key(id), 'errorJson', FAILURES.unknown_workflow)
    finish(run, 'failed')
    failed = failed + 1
  end
end
return {failed, redis.call('ZCARD', lane_key(lane_name(queue, workflow)))}
