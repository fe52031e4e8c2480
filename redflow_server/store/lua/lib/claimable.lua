-- The steps that fit into the answer; false when they have to be read afterwards.
--@include settle
local function steps_of(run, limits)
  local fields, size = redis.call('HLEN', steps_key(run.id)), tonumber(run.stepsBytes) or 0
  if fields == 0 then return {}, 0 end
  if size > limits.bytes or fields > 2 * limits.steps then return false, 0 end
  return redis.call('HGETALL', steps_key(run.id)), size
end

-- The run of an entry, if it may be leased. One that may not leaves the lane; `overdue` gets those that have to end.
local function claimable(lane, id, overdue)
  local run = read_run(id)
  local is_here = run and run.status == 'queued' and run.queue == lane.queue and run.workflow == lane.workflow
  if not is_here or (run.solo ~= nil) ~= lane.solo then
    redis.call('ZREM', lane.key, id)
    return nil
  end
  if settled_status(run, 'queued') == 'queued' then return run end
  redis.call('ZREM', lane.key, id)
  overdue[#overdue + 1] = id
end
