-- Starts a run, or answers the one that its idempotency key names. Of the end of a new one the gateway `waiter` is told.
-- KEYS    prefix
-- ARGS    now run_id workflow queue max_attempts priority typed input input_meta digest available_at key key_ttl_ms mismatch
--         waiter
-- RETURNS created | repeated | existing id differs | unknown_workflow | key_reused id
-- EMITS   lane, due
-- REPEAT  yes
-- BATCH   yes
--@include keyed place routed start
local start = {id = ARGV[2], workflow = ARGV[3], queue = ARGV[4], max_attempts = ARGV[5], priority = ARGV[6],
  typed = ARGV[7], input = ARGV[8], input_meta = ARGV[9], digest = ARGV[10], available_at = ARGV[11], key = ARGV[12],
  key_ttl = tonumber(ARGV[13]), waiters = ARGV[15] ~= '' and ARGV[15] or nil}

local function answer_existing(run)
  local differs = run.inputDigest ~= nil and run.inputDigest ~= start.digest
  if differs and ARGV[14] == 'reject' then return {'key_reused', run.id} end
  refresh_key(run, start.key, start.key_ttl)
  place(run)
  return {'existing', run.id, differs and 1 or 0}
end

local repeated = read_run(start.id)
if repeated then
  place(repeated)
  return {'repeated'}
end
local existing = start.key ~= '' and find_by_key(start.workflow, start.key)
if existing then return answer_existing(existing) end
if not routed(start) then return {'unknown_workflow'} end
start_run(start)
return {'created'}
