-- A run's open waits stand in a hash, step -> `kind|since|deadline|<bytes of group>:<group><target>`. The target is the
-- run, the channel of events or the token that it waits for. Who waits is said elsewhere as run and step: to the run
-- that is awaited, on the channel, and at the deadline.
--@include due now
local function read_wait(entry)
  local kind, since, deadline, size, rest = string.match(entry, '^(%a*)|(%d*)|(%d*)|(%d+):(.*)$')
  size, rest = tonumber(size) or 0, rest or ''
  return {kind = kind or '', since = since or '', deadline = deadline or '', group = string.sub(rest, 1, size),
    target = string.sub(rest, size + 1)}
end

local function write_wait(wait)
  return table.concat({wait.kind, wait.since, wait.deadline, lp(wait.group) .. wait.target}, '|')
end

local function awaiter(id, step) return id .. ' ' .. step end
local function awaited_by(member) return string.match(member, '^(%S+) (.*)$') end

-- What the end of a run does to others is bounded in each script, by number and by bytes. The rest stands in the outbox,
-- which a loop of every gateway works off.
local MAX_EFFECTS, MAX_EFFECT_BYTES = 100, 4 * 1024 * 1024
local effects, effect_bytes = 0, 0

local function is_full() return effects >= MAX_EFFECTS or effect_bytes >= MAX_EFFECT_BYTES end
local function count_effect(bytes) effects, effect_bytes = effects + 1, effect_bytes + bytes end
local function put_off(entry) due_at(OUTBOX, 'outbox', now, entry) end
