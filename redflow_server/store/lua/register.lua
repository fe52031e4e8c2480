-- Registers the whole set of an owner's workflows, as one build of it defines them, and retires those that it leaves
-- out and nobody has asserted lately. Only what is new is refused when memory is full: the workers that drain it have to
-- be let in.
-- KEYS    prefix
-- ARGS    now owner build stale_ms ...workflows(name digest queue max_attempts retry run_timeout start_timeout
--         failure_handler_ms events schedules definition)
-- RETURNS answers retired-names; an answer for each workflow: registered | superseded | foreign_owner, former-queues
-- EMITS   due
-- REPEAT  yes
--@include builds forget_workflow former_queues relief schedules
local owner, build, stale_ms = ARGV[2], ARGV[3], tonumber(ARGV[4])
local seen_at = redis.call('HGET', owner_builds_key(owner), build) or now
local ARGS = 11
local function is_fresh(workflow) return now - (tonumber(workflow.updatedAt) or 0) < stale_ms end

-- Why a definition stays as it is: it is another owner's, or a later build's, and in use.
local function kept_by(workflow, digest)
  if not workflow or not is_fresh(workflow) then return nil end
  if workflow.owner ~= owner then return 'foreign_owner' end
  local later = workflow.digest ~= digest and first_seen(owner, workflow.buildId) > tonumber(seen_at)
  return later and 'superseded' or nil
end

local function write(before, i, queue, former)
  local name = ARGV[i]
  local cron_ids = write_schedules(before, cjson.decode(ARGV[i + 9]))
  if before then forget_definition(before, queue) end
  if before and before.owner ~= owner then forget_owner_without_workflows(before.owner or '') end
  redis.call('SADD', WORKFLOWS, name)
  redis.call('SADD', owner_workflows_key(owner), name)
  redis.call('HSET', workflow_key(name), 'name', name, 'digest', ARGV[i + 1], 'queue', queue, 'maxAttempts', ARGV[i + 3],
    'owner', owner, 'buildId', build, 'updatedAt', now, 'eventsJson', ARGV[i + 8], 'definitionJson', ARGV[i + 10])
  for field, at in pairs({retryPolicy = 4, runTimeoutMs = 5, startTimeoutMs = 6, failureHandlerMs = 7}) do
    if ARGV[i + at] ~= '' then redis.call('HSET', workflow_key(name), field, ARGV[i + at]) end
  end
  if cron_ids ~= '[]' then redis.call('HSET', workflow_key(name), 'cronIdsJson', cron_ids) end
  if former ~= '[]' then redis.call('HSET', workflow_key(name), 'formerQueuesJson', former) end
  for _, event in ipairs(cjson.decode(ARGV[i + 8])) do redis.call('SADD', event_workflows_key(event), name) end
end

local has_new = false
for i = 5, #ARGV, ARGS do
  local before = read_workflow(ARGV[i])
  local same = before and before.owner == owner and before.digest == ARGV[i + 1]
  if not same and not kept_by(before, ARGV[i + 1]) then has_new = true end
end
if not has_new then begin_writes() end
redis.call('HSETNX', owner_builds_key(owner), build, now)
drop_oldest_build(owner)

local answers, named, retired = {}, {}, {}
for i = 5, #ARGV, ARGS do
  local before = read_workflow(ARGV[i])
  local kept = kept_by(before, ARGV[i + 1])
  local queue = kept and before.queue or ARGV[i + 2]
  local former, names = former_queues(before, queue)
  named[ARGV[i]] = true
  if not kept then write(before, i, queue, former) end
  answers[#answers + 1] = {kept or 'registered', names}
end
for _, name in ipairs(redis.call('SMEMBERS', owner_workflows_key(owner))) do
  local workflow = not named[name] and (read_workflow(name) or {name = name, owner = owner})
  if workflow and not is_fresh(workflow) then
    forget_workflow(workflow)
    retired[#retired + 1] = name
  end
end
forget_owner_without_workflows(owner)
return {answers, retired}
