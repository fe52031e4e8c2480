-- A step's header is `status|kind|seq|attempt|final|startedAt|finishedAt|size|target|meta`; its value stands beside it.
-- The target is the run that a step waits for.
local function read_header(header)
  local status, kind, seq, attempt, final, started, finished, size, target, meta =
    string.match(header, '^(%a*)|(%a*)|(%d*)|(%d*)|(%d*)|(%d*)|(%d*)|(%d*)|([^|]*)|(.*)$')
  return {status = status, kind = kind, seq = seq, attempt = attempt, final = final, startedAt = started,
    finishedAt = finished, size = size, target = target, meta = meta}
end

local function write_header(step)
  return table.concat({step.status, step.kind, step.seq, step.attempt, step.final, step.startedAt, step.finishedAt,
    step.size, step.target or '', step.meta}, '|')
end

-- The step that starts at one of an item's arguments: name seq kind status final elapsed_ms meta value.
local STEP_ARGS = 8
local function step_at(arguments, i)
  local name, seq, kind, status, final, elapsed, meta, value = unpack(arguments, i, i + 7)
  return {name = name, seq = seq, kind = kind, status = status, final = final, elapsed = tonumber(elapsed), meta = meta,
    value = value}
end
