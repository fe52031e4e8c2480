-- Changes of a record are collected, and written together by `save`. A field without a value is removed.
--@include keys
local function put(run, field, value)
  if run[field] == value then return end
  run[field] = value
  run.changed[field] = true
end

local function save(run)
  local values, gone = {}, {}
  for field in pairs(run.changed) do
    if run[field] == nil then
      gone[#gone + 1] = field
    else
      values[#values + 1] = field
      values[#values + 1] = run[field]
    end
  end
  if #gone > 0 then redis.call('HDEL', run_key(run.id), unpack(gone)) end
  if #values > 0 then redis.call('HSET', run_key(run.id), unpack(values)) end
  run.changed = {}
end
