-- The cron schedules of a workflow: `definitions` are [id, timing, next occurrence, document] as the registry computed
-- them. One whose timing stays keeps its next occurrence, so that none is dropped or planned twice.
--@include due forget_schedule

-- What a foreign hand wrote in the place of a document has no timing.
local function timing_of(document)
  local readable, stored = pcall(cjson.decode, document or '')
  return readable and type(stored) == 'table' and stored.timing or nil
end

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
