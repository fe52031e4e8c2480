-- Fails the runs of a workflow that nobody has ever registered, in a queue that a worker asked for by name. Runs that were
-- started through a definition, or of a workflow that was known once, wait: their worker is on its way.
-- KEYS    prefix
-- ARGS    now queue workflow grace_ms offset limit
-- RETURNS failed next_offset is_empty; next_offset false at the end of the lane
-- EMITS   lane, due, finished, resolved, stop
-- REPEAT  yes
--@include effects failures relief
local queue, workflow, grace_ms = ARGV[2], ARGV[3], tonumber(ARGV[4])
local offset, limit = tonumber(ARGV[5]), tonumber(ARGV[6])
local lane = lane_key(lane_name(queue, workflow))
if redis.call('EXISTS', workflow_key(workflow)) == 1 then return {0, false, 1 - redis.call('EXISTS', lane)} end

local function is_unknown(run)
  local here = run and run.status == 'queued' and run.queue == queue and run.workflow == workflow
  local is_new = here and not run.typed and not run.deliveries and not run.phase
  return is_new and now - (tonumber(run.placedAt or run.createdAt) or 0) >= grace_ms
end

local ids, failed = redis.call('ZRANGE', lane, offset, offset + limit - 1), 0
begin_writes()
for _, id in ipairs(ids) do
  local run = read_run(id)
  if is_unknown(run) then
    lane_remove(run)
    put(run, 'attempt', 1)
    redis.call('HSET', data_key(id), 'errorJson', FAILURES.unknown_workflow)
    finish(run, 'failed')
    failed = failed + 1
  end
end
return {failed, #ids == limit and offset + limit - failed, 1 - redis.call('EXISTS', lane)}
