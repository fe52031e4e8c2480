-- Reads the schedules of workflows, with where each stands.
-- KEYS    prefix
-- ARGS    now ...workflows(name)
-- RETURNS schedules(id definition next last skipped problem); all but id and definition false where there is none
-- REPEAT  yes
-- In the place of a definition that a foreign hand made unreadable stands an empty one of the same workflow.
--@include keys
local function definition_of(id, workflow)
  local stored = redis.call('HGET', CRON_DEF, id)
  local readable, fields = pcall(cjson.decode, stored or '')
  readable = readable and type(fields) == 'table' and fields.workflow == workflow
  for _, field in ipairs({'id', 'expression', 'timezone'}) do
    readable = readable and type(fields[field]) == 'string'
  end
  local input = readable and fields.input
  readable = readable and (input == cjson.null or type(input) == 'table' and type(input.data) == 'string'
    and #input.data % 4 == 0 and string.match(input.data, '^[%w+/]*=?=?$') and type(input.contentType) == 'string'
    and type(input.metadata) == 'table' and input.metadata[1] == nil)
  if readable then return stored end
  return cjson.encode({workflow = workflow, id = '', expression = '', timezone = '', input = cjson.null}),
    'the definition on record cannot be read'
end

local schedules = {}
for i = 2, #ARGV do
  local ids = redis.call('HGET', workflow_key(ARGV[i]), 'cronIdsJson')
  for _, id in ipairs(cjson.decode(ids or '[]')) do
    local definition, problem = definition_of(id, ARGV[i])
    schedules[#schedules + 1] = {id, definition, redis.call('ZSCORE', CRON_NEXT, id),
      redis.call('ZSCORE', CRON_LAST, id), redis.call('HGET', CRON_SKIPPED, id),
      redis.call('HGET', CRON_PROBLEM, id) or problem or false}
  end
end
return schedules
