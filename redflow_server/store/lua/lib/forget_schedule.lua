-- Takes a cron schedule out of the plan.
--@include keys
local function forget_schedule(id)
  redis.call('HDEL', CRON_DEF, id)
  redis.call('ZREM', CRON_NEXT, id)
  redis.call('HDEL', CRON_SKIPPED, id)
  redis.call('HDEL', CRON_PROBLEM, id)
end

local function schedules_of(workflow) return cjson.decode(workflow and workflow.cronIdsJson or '[]') end
