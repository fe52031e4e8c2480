-- The cron schedules of a workflow: `definitions` are [id, timing, next occurrence, document] as the registry computed
-- them. One whose timing stays keeps its next occurrence, so that none is dropped or planned twice.
local function forget_schedule(id)
  redis.call('HDEL', CRON_DEF, id)
  redis.call('ZREM', CRON_NEXT, id)
  redis.call('HDEL', CRON_SKIPPED, id)
  redis.call('HDEL', CRON_PROBLEM, id)
end

-- The last occurrence of a schedule that is gone is remembered for a day, in case the schedule comes back. A hundred of
-- all are looked at, by chance: the oldest may be those of schedules that come once a year.
local function forget_old_occurrences()
  local some = redis.call('ZRANDMEMBER', CRON_LAST, 100, 'WITHSCORES')
  for i = 1, #some, 2 do
    local is_old = tonumber(some[i + 1]) <= now - 86400000
    if is_old and redis.call('HEXISTS', CRON_DEF, some[i]) == 0 then redis.call('ZREM', CRON_LAST, some[i]) end
  end
end

-- What a foreign hand wrote in the place of a document has no timing.
local function timing_of(document)
  local readable, stored = pcall(cjson.decode, document or '')
  return readable and type(stored) == 'table' and stored.timing or nil
end

local function schedules_of(workflow) return cjson.decode(workflow and workflow.cronIdsJson or '[]') end

local function write_schedules(before, definitions)
  local ids, kept = {}, {}
  for _, definition in ipairs(definitions) do
    local id, timing, next_at, document = unpack(definition)
    local same = timing_of(redis.call('HGET', CRON_DEF, id)) == timing
    redis.call('HSET', CRON_DEF, id, document)
    if not same or not redis.call('ZSCORE', CRON_NEXT, id) then
      redis.call('HDEL', CRON_PROBLEM, id)
      due_at(CRON_NEXT, 'cron', next_at, id)
    end
    if not kept[id] then ids[#ids + 1] = id end
    kept[id] = true
  end
  for _, id in ipairs(schedules_of(before)) do
    if not kept[id] then forget_schedule(id) end
  end
  return #ids > 0 and cjson.encode(ids) or '[]'
end
