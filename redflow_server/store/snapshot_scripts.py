"""The scripts that a snapshot is read with: each reads one thing with every place that has it, at one instant."""

from __future__ import annotations

from typing import Final

HEAD: Final = """
-- A key of another type answers nothing here: that it is of another type is told by a rule of its own.
local function ask(...)
  local reply = redis.pcall(...)
  if type(reply) == 'table' and reply.err then return false end
  return reply
end
-- Of the keys that came as arguments after the first, those that have the member and are not among its own.
local function strays_of(command, own, answer)
  local is_own = {}
  for _, key in ipairs(own) do is_own[key] = true end
  for i = 2, #ARGV do
    local found = not is_own[ARGV[i]] and ask(command, ARGV[i], ARGV[1])
    if found and found ~= 0 then answer(ARGV[i], found) end
  end
end
-- The parts of an open wait's entry; of one that cannot be read they are empty.
local function read_wait(entry)
  local kind, since, deadline, size, rest = string.match(entry or '', '^(%a+)|([^|]*)|([^|]*)|(%d+):(.*)$')
  return {kind = kind or '', since = since or '', deadline = deadline or '',
    target = kind and string.sub(rest, tonumber(size) + 1) or ''}
end
-- An event in the log of its channel, by its fields; nil when it is not there.
local function logged(channel, from, to)
  local found = (ask('XRANGE', event_log_key(channel), from, to, 'COUNT', 1) or {})[1]
  if not found then return nil end
  local fields = {}
  for i = 1, #found[2], 2 do fields[found[2][i]] = found[2][i + 1] end
  return {entry_id = found[1], number = string.match(found[1], '^(%d+)%-0$') or '', at = fields.at or '',
    bytes = fields.bytes or ''}
end
local function decoded(raw)
  local readable, document = pcall(cjson.decode, raw or '')
  return readable and type(document) == 'table' and document or {}
end
"""

READ_KEY: Final = """
local kept_for = ARGV[2]
return {redis.call('TYPE', ARGV[1]).ok, redis.call('PTTL', ARGV[1]), redis.call('EXISTS', kept_for)}
"""

READ_RUN: Final = """
local id = ARGV[1]
local record, run, own, scores, strays, steps = ask('HGETALL', run_key(id)) or {}, {}, {}, {}, {}, {}
for i = 1, #record, 2 do run[record[i]] = record[i + 1] end
own = {SCHEDULED, LEASES, DEADLINES}
if run.status and run.workflow and run.queue then
  own[4] = lane_key(lane_name(run.queue, run.workflow, run.solo))
  own[5], own[6] = status_key(run.status), workflow_status_key(run.status, run.workflow)
  own[7] = finished_key(run.status)
end
for i, key in ipairs(own) do scores[i] = ask('ZSCORE', key, id) end
strays_of('ZSCORE', own, function(key, score) strays[#strays + 1] = {key, score} end)
for _, field in ipairs(ask('HKEYS', steps_key(id)) or {}) do
  local is_header = string.sub(field, 1, 2) == 's:'
  steps[#steps + 1] = {field, redis.call(is_header and 'HGET' or 'HSTRLEN', steps_key(id), field)}
end
local names_key = run.workflow and run.idempotencyKey
local pointer = names_key and ask('GET', idempotency_key(run.workflow, run.idempotencyKey)) or false
local has_data, has_steps = redis.call('EXISTS', data_key(id)), redis.call('EXISTS', steps_key(id))

local cursors, cursor_of = ask('HGETALL', cursors_key(id)) or {}, {}
for i = 1, #cursors, 2 do cursor_of[cursors[i]] = cursors[i + 1] end
-- A wait has been given what there was when it began, and hears of what comes later by a delivery: so the oldest event
-- that its run has not had is on its way to it.
local function missed(channel, place)
  local event = logged(channel, (cursor_of[channel] or run.eventSeq or '0') .. '-1', '+')
  local at = event and ask('ZSCORE', DELIVERIES, event.number .. ' ' .. channel)
  local is_coming = at and tonumber(at) <= tonumber(place) and tonumber(place) < tonumber(event.number)
  return event and not is_coming and event.entry_id or false
end

local ends, waits, awaiters = {succeeded = true, failed = true, canceled = true}, {}, {}
local function is_over(status) return not status or ends[status] == true end
local function owes(word, run_id) return ask('ZSCORE', OUTBOX, word .. ' ' .. run_id) and 1 or 0 end
local flat = ask('HGETALL', waits_key(id)) or {}
for i = 1, #flat, 2 do
  local wait, member = read_wait(flat[i + 1]), id .. ' ' .. flat[i]
  local target, is_known, has_end, place = wait.target, 0, 0, false
  if wait.kind == 'child' then
    is_known = ask('SISMEMBER', awaiters_key(target), member) or 0
    has_end = is_over(ask('HGET', run_key(target), 'status')) and owes('wake', target) or 1
  end
  if wait.kind == 'event' then place = ask('ZSCORE', event_waits_key(target), member) end
  waits[#waits + 1] = {flat[i], flat[i + 1], wait.kind, wait.since, wait.deadline, target,
    ask('ZSCORE', TIMERS, member), place, is_known, has_end, place and missed(target, place)}
end
for _, member in ipairs(ask('SMEMBERS', awaiters_key(id)) or {}) do
  local parent, step = string.match(member, '^(%S+) (.*)$')
  local wait = read_wait(parent and ask('HGET', waits_key(parent), step))
  awaiters[#awaiters + 1] = {member, wait.kind == 'child' and wait.target == id and 1 or 0}
end
return {record, scores, strays, steps, pointer, has_data, has_steps, redis.call('TIME'),
  waits, awaiters, owes('wake', id), owes('withdraw', id), owes('close', id), cursors,
  redis.call('EXISTS', children_key(id))}
"""

READ_STANDING_WAIT: Final = """
local key, member = ARGV[1], ARGV[2]
if not ask('ZSCORE', key, member) then return false end
local id, step = string.match(member, '^(%S+) (.*)$')
local wait = read_wait(id and ask('HGET', waits_key(id), step))
if key == TIMERS then return {wait.deadline ~= '' and 1 or 0} end
return {wait.kind == 'event' and event_waits_key(wait.target) == key and 1 or 0}
"""

READ_LANE: Final = """
return {lane_key(ARGV[1]), ask('ZSCORE', LANES, ARGV[1]), ask('ZCARD', lane_key(ARGV[1])) or 0}
"""

READ_WORKFLOW: Final = """
local name = ARGV[1]
local exists = redis.call('EXISTS', workflow_key(name))
local fields = exists == 1 and ask('HMGET', workflow_key(name), 'owner', 'eventsJson') or {}
local own, missing, strays = {WORKFLOWS}, {}, {}
if fields[1] then own[2] = owner_workflows_key(fields[1]) end
for _, event in ipairs(decoded(fields[2])) do own[#own + 1] = event_workflows_key(event) end
for i = 2, #own do
  if ask('SISMEMBER', own[i], name) ~= 1 then missing[#missing + 1] = own[i] end
end
strays_of('SISMEMBER', own, function(key) strays[#strays + 1] = key end)
return {exists, ask('SISMEMBER', WORKFLOWS, name) or 0, missing, strays}
"""

READ_POINTER: Final = """
local target = ask('GET', ARGV[1])
if not target then return false end
local named = ask('HMGET', run_key(target), 'workflow', 'idempotencyKey') or {}
local own = named[1] and named[2] and idempotency_key(named[1], named[2])
return {target, redis.call('EXISTS', run_key(target)), own or false}
"""

READ_OUTBOX_ENTRY: Final = """
local score, time = ask('ZSCORE', OUTBOX, ARGV[1]), redis.call('TIME')
return score and {score, time} or false
"""

READ_EVENT: Final = """
local id = ARGV[1]
local fields = ask('HMGET', emitted_key(id), 'name', 'expiresAt', 'part') or {}
local has_part = fields[3] and ask('HEXISTS', emitted_key(id), 'part:' .. fields[3]) == 1
return {redis.call('EXISTS', emitted_key(id)), redis.call('PTTL', emitted_key(id)), ask('ZSCORE', FAN_OUTS, id),
  fields[1] or false, fields[2] or false, has_part and 1 or 0}
"""

READ_EVENT_KEY: Final = """
local id = ask('GET', ARGV[1])
if not id then return false end
return {id, ask('HGET', emitted_key(id), 'name') or false}
"""

READ_REMEMBERED: Final = """
local score = ask('ZSCORE', EVENT_MEMORY, ARGV[1])
if not score then return false end
local number, at, bytes, channel = string.match(ARGV[1], '^(%d+) (%d+) (%d+) (.*)$')
local event = number and logged(channel, number .. '-0', number .. '-0')
return {score, event and event.at == at and event.bytes == bytes and 1 or 0}
"""

READ_CHANNEL: Final = """
local channel, events, is_held = ARGV[1], {}, 0
local event = logged(channel, '-', '+')
while event do
  local entry = table.concat({event.number, event.at, event.bytes, channel}, ' ')
  events[#events + 1] = {event.entry_id, ask('ZSCORE', EVENT_MEMORY, entry) and 1 or 0}
  if ask('ZSCORE', DELIVERIES, event.number .. ' ' .. channel) then is_held = 1 end
  event = logged(channel, '(' .. event.entry_id, '+')
end
return {redis.call('EXISTS', event_log_key(channel)), events, is_held}
"""

READ_EVENT_BYTES: Final = """
local sum = 0
for _, entry in ipairs(ask('ZRANGE', EVENT_MEMORY, ARGV[1], ARGV[2]) or {}) do
  sum = sum + (tonumber(string.match(entry, '^%d+ %d+ (%d+) ')) or 0)
end
local bytes, count = ask('GET', EVENT_BYTES) or '0', ask('ZCARD', EVENT_MEMORY) or 0
return {bytes, count, (ask('GET', EVENT_SEQ) or '0'), string.format('%.0f', sum)}
"""

READ_DELIVERY: Final = """
local number, channel = string.match(ARGV[1], '^(%d+) (.*)$')
if not ask('ZSCORE', DELIVERIES, ARGV[1]) then return false end
local event = number and logged(channel, number .. '-0', number .. '-0')
return {event and event.at or false, redis.call('TIME')}
"""

READ_SCHEDULE: Final = """
local id, listed_by, seen = ARGV[1], {}, {}
local definition = ask('HGET', CRON_DEF, id)
local workflow = decoded(definition).workflow
local names = {unpack(ARGV, 2)}
if workflow then names[#names + 1] = workflow end
for _, name in ipairs(names) do
  for _, one in ipairs(not seen[name] and decoded(ask('HGET', workflow_key(name), 'cronIdsJson')) or {}) do
    if one == id then listed_by[#listed_by + 1] = name end
  end
  seen[name] = true
end
return {definition and 1 or 0, workflow or '', listed_by, ask('ZSCORE', CRON_NEXT, id) and 1 or 0,
  ask('HEXISTS', CRON_PROBLEM, id) or 0, ask('HEXISTS', CRON_SKIPPED, id) or 0}
"""
