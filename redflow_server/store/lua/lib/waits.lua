-- A run's open waits stand in a hash, step -> `kind|since|target`; the run that is awaited knows by whom, run and step.
--@include due now
local function read_wait(entry)
  local kind, since, target = string.match(entry, '^(%a*)|(%d*)|(.*)$')
  return {kind = kind, since = since, target = target}
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
