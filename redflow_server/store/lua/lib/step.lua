-- A step's header is `status|kind|seq|attempt|final|startedAt|finishedAt|size|tries|resolved|target|meta`; its value
-- stands beside it. Tries are calls of its function in the attempt. Waits that are over are numbered, in the order in
-- which they were resolved. The target is the run or token that a step waits for, or the event that it got.
local HEADER = '^(%a*)|(%a*)|(%d*)|(%d*)|(%d*)|(%d*)|(%d*)|(%d*)|(%d*)|(%d*)|([^|]*)|(.*)$'
local function read_header(header)
  local status, kind, seq, attempt, final, started, finished, size, tries, resolved, target, meta =
    string.match(header, HEADER)
  return {status = status, kind = kind, seq = seq, attempt = attempt, final = final, startedAt = started,
    finishedAt = finished, size = size, tries = tries, resolved = resolved, target = target, meta = meta}
end

local function write_header(step)
  return table.concat({step.status, step.kind, step.seq, step.attempt, step.final, step.startedAt, step.finishedAt,
    step.size, step.tries or '', step.resolved or '', step.target or '', step.meta}, '|')
end

-- The step that starts at one of an item's arguments: name seq kind status final tries elapsed_ms meta value.
local STEP_ARGS = 9
local function step_at(arguments, i)
  local name, seq, kind, status, final, tries, elapsed, meta, value = unpack(arguments, i, i + 8)
  return {name = name, seq = seq, kind = kind, status = status, final = final, tries = tries,
    elapsed = tonumber(elapsed), meta = meta, value = value}
end
