-- Keeps the definitions that live sessions use from going stale.
-- KEYS    prefix
-- ARGS    now stale_ms ...assertions(owner build name digest)
-- RETURNS one for each: kept | needed, when it has to be registered again
-- REPEAT  yes
--@include keys now workflow
local stale_ms = tonumber(ARGV[2])
local answers = {}
for i = 3, #ARGV, 4 do
  local owner, build, name, digest = ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3]
  local workflow = read_workflow(name)
  if not workflow or now - (tonumber(workflow.updatedAt) or 0) >= stale_ms then
    answers[#answers + 1] = 'needed'
  else
    if workflow.owner == owner and workflow.digest == digest then
      redis.call('HSET', workflow_key(name), 'updatedAt', now)
      redis.call('HSETNX', owner_builds_key(owner), build, now)
    end
    answers[#answers + 1] = 'kept'
  end
end
return answers
