-- Keeps the definitions that live sessions use from going stale.
-- KEYS    prefix
-- ARGS    now stale_ms ...assertions(owner build name digest)
-- RETURNS one for each: kept | needed, when it has to be registered again
-- REPEAT  yes
--@include builds old_occurrences relief workflow
local stale_ms = tonumber(ARGV[2])
local answers = {}
begin_writes()
forget_old_occurrences()
for i = 3, #ARGV, 4 do
  local owner, build, name, digest = ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3]
  local workflow = read_workflow(name)
  local mine = workflow and workflow.owner == owner
  if mine then redis.call('HSETNX', owner_builds_key(owner), build, now) end
  if not workflow or now - (tonumber(workflow.updatedAt) or 0) >= stale_ms then
    answers[#answers + 1] = 'needed'
  elseif mine and workflow.digest ~= digest and first_seen(owner, build) > first_seen(owner, workflow.buildId) then
    answers[#answers + 1] = 'needed'
  else
    if mine and workflow.digest == digest then redis.call('HSET', workflow_key(name), 'updatedAt', now) end
    answers[#answers + 1] = 'kept'
  end
end
return answers
