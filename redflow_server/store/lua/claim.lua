-- Leases queued runs to one session, from its lanes in turn.
-- KEYS    prefix
-- ARGS    now session epoch gateway count delivery_ms secret max_bytes max_steps max_step_bytes ...lanes(queue workflow)
-- RETURNS emptied-flags runs(id lane attempt max_attempts deliveries time_left parent input input_meta steps)
-- EMITS   due, finished
-- REPEAT  no
--@include keys now run save index lane due schedule deadline failures lease finish settle grant
local stamp = ARGV[2] .. ' ' .. ARGV[3] .. ' ' .. ARGV[4]
local count, delivery_ms, secret = tonumber(ARGV[5]), tonumber(ARGV[6]), ARGV[7]
local max_bytes, max_steps, max_step_bytes = tonumber(ARGV[8]), tonumber(ARGV[9]), tonumber(ARGV[10])
local claimed, bytes, seen, full = {}, 0, 0, false

-- The steps that fit into the answer; false when they have to be read afterwards.
local function steps_of(run)
  if redis.call('EXISTS', steps_key(run.id)) == 0 then return {}, 0 end
  local size = tonumber(run.stepsBytes) or 0
  if size > max_step_bytes or redis.call('HLEN', steps_key(run.id)) > 2 * max_steps then return false, 0 end
  return redis.call('HGETALL', steps_key(run.id)), size
end

local function take(lane, id)
  local run = read_run(id)
  if not run or run.status ~= 'queued' or run.queue ~= lane.queue or run.workflow ~= lane.workflow then
    return lane_remove(lane.queue, lane.workflow, id)
  end
  if settled_status(run, 'queued') ~= 'queued' then
    lane_remove(lane.queue, lane.workflow, id)
    return settle(run, 'queued')
  end
  local data = redis.call('HMGET', data_key(id), 'inputJson', 'inputMeta')
  local steps, size = steps_of(run)
  bytes = bytes + #(data[1] or '') + size
  full = bytes > max_bytes and #claimed > 0
  if full then return end
  grant(run, stamp, secret, delivery_ms, lane.policy)
  local time_left = run.runDeadline and run.runDeadline - now or ''
  claimed[#claimed + 1] = {id, lane.number, run.attempt, tonumber(run.maxAttempts) or 1, run.deliveries, time_left,
    run.parentRunId or '', data[1], data[2], steps}
end

local lanes = {}
for i = 11, #ARGV, 2 do
  local policy = redis.call('HMGET', workflow_key(ARGV[i + 1]), 'retryPolicy', 'runTimeoutMs')
  lanes[#lanes + 1] = {number = #lanes, queue = ARGV[i], workflow = ARGV[i + 1],
    key = lane_key(lane_name(ARGV[i], ARGV[i + 1])), policy = {retry = policy[1], run_timeout = policy[2]}}
end

local share = math.ceil(count / #lanes)
repeat
  local before = seen
  for _, lane in ipairs(lanes) do
    local room = full and 0 or math.min(share, count - #claimed)
    for _, id in ipairs(room > 0 and redis.call('ZRANGE', lane.key, 0, room - 1) or {}) do
      seen = seen + 1
      if not full then take(lane, id) end
    end
  end
until full or seen == before or #claimed >= count or seen > count + 100

local emptied = {}
for i, lane in ipairs(lanes) do emptied[i] = 1 - redis.call('EXISTS', lane.key) end
return {emptied, claimed}
