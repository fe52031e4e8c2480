-- Starts runs of an event's subscribers. Their ids are functions of event and workflow: a repeat makes none.
--@include routed run start
local FAN_OUT_RUNS, FAN_OUT_BYTES = 100, 4 * 1024 * 1024

-- The ids of an event's runs, in one string. There may be ten thousand: each string that is made for one counts.
local function subscriber_ids(event_id, workflows)
  local sha1hex, sub, begin, ids = redis.sha1hex, string.sub, lp(event_id), {}
  for i = 1, #workflows do ids[i] = sub(sha1hex(begin .. workflows[i]), 1, 22) end
  return #ids > 0 and 'run_' .. table.concat(ids, ' run_') or ''
end

local function subscriber_id(event_id, workflow) return subscriber_ids(event_id, {workflow}) end

-- How many of them one script may start.
local function slice_of(payload)
  return math.max(1, math.min(FAN_OUT_RUNS, math.floor(FAN_OUT_BYTES / (#payload + 1))))
end

-- A queue is given where the workflow has another one by now, or is gone: the answer of the emission named the run.
local function start_subscriber(event, workflow, queue)
  local start = {id = subscriber_id(event.id, workflow), workflow = workflow, queue = queue, max_attempts = '',
    priority = '0', typed = '1', input = event.payload, input_meta = event.meta, digest = event.digest,
    available_at = event.available_at, key = '', event_seq = event.number}
  if not read_run(start.id) and routed(start) then start_run(start) end
end
