-- Leases queued runs to one session, from its lanes in turn.
-- KEYS    prefix
-- ARGS    now session epoch gateway count lease_ms secret max_bytes max_steps max_step_bytes solo ...lanes(queue workflow)
-- RETURNS emptied-flags runs(id lane attempt max_attempts deliveries time_left parent failure input input_meta steps)
--         lane_change; a failure is there when its handler is to be run
-- EMITS   lane, due, finished, resolved, stop
-- REPEAT  no
--@include claimable grant relief
local stamp = ARGV[2] .. ' ' .. ARGV[3] .. ' ' .. ARGV[4]
local count, lease_ms, secret = tonumber(ARGV[5]), tonumber(ARGV[6]), ARGV[7]
local max_bytes, limits = tonumber(ARGV[8]), {steps = tonumber(ARGV[9]), bytes = tonumber(ARGV[10])}
local solo = ARGV[11] == 'solo'
local claimed, bytes, seen, full = {}, 0, 0, false

-- Leases up to so many runs of a lane, as far as the answer has room.
local function take(lane, room)
  local runs, answers, overdue = {}, {}, {}
  for _, id in ipairs(redis.call('ZRANGE', lane.key, 0, room - 1)) do
    seen = seen + 1
    local run = claimable(lane, id, overdue)
    if run then
      local data = redis.call('HMGET', data_key(id), 'inputJson', 'inputMeta')
      local steps, size = steps_of(run, limits)
      local input = data[1] or run.inputJson
      bytes = bytes + #(input or '') + size
      full = bytes > max_bytes and #claimed + #runs > 0
      if full then break end
      runs[#runs + 1] = run
      answers[#answers + 1] = {input or false, data[2], steps}
    end
  end
  if #runs > 0 then grant(runs, lane, stamp, secret, lease_ms) end
  -- Only now, since their end may be the end of others of this lane.
  for _, id in ipairs(overdue) do
    local run = read_run(id)
    if run and run.status == 'queued' then settle(run, 'queued') end
  end
  for i, run in ipairs(runs) do
    claimed[#claimed + 1] = {run.id, lane.number, run.attempt, tonumber(run.maxAttempts) or 1, run.deliveries,
      run.runDeadline and run.runDeadline - now or '', run.parentRunId or '',
      run.phase and redis.call('HGET', data_key(run.id), 'errorJson') or false, unpack(answers[i], 1, 3)}
  end
end

local lanes = {}
for i = 12, #ARGV, 2 do
  local name = lane_name(ARGV[i], ARGV[i + 1], solo)
  local policy = redis.call('HMGET', workflow_key(ARGV[i + 1]), 'retryPolicy', 'runTimeoutMs', 'failureHandlerMs')
  lanes[#lanes + 1] = {number = #lanes, queue = ARGV[i], workflow = ARGV[i + 1], solo = solo, name = name, key = lane_key(name),
    retry = policy[1], run_timeout = policy[2], handler_ms = policy[3]}
end

begin_writes()
local share = math.ceil(count / #lanes)
repeat
  local before = seen
  for _, lane in ipairs(lanes) do
    local room = full and 0 or math.min(share, count - #claimed)
    if room > 0 then take(lane, room) end
  end
until full or seen == before or #claimed >= count or seen > count + 100

local emptied = {}
for i, lane in ipairs(lanes) do
  emptied[i] = 1 - redis.call('EXISTS', lane.key)
  if emptied[i] == 1 then redis.call('ZREM', LANES, lane.name) end
end
return {emptied, claimed, tonumber(redis.call('GET', LANE_SEQ) or 0)}
