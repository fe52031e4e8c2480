-- Reads the steps of a run; values only while they fit. With a token only for the holder of the lease.
-- KEYS    prefix
-- ARGS    now run_id token max_bytes max_value_bytes ...names(step_name)
-- RETURNS steps(name header value), value false when it did not fit | missing | lost
-- REPEAT  yes
-- BATCH   yes
--@include run step
local run, token, max_bytes, max_value_bytes = read_run(ARGV[2]), ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])
if not run then return 'missing' end
if token ~= '' and run.leaseToken ~= token then return 'lost' end
local bytes, steps = 0, {}

local function add(name)
  local header = redis.call('HGET', steps_key(run.id), 's:' .. name)
  if not header then return end
  local size, value = tonumber(read_header(header).size) or 0, false
  if size <= max_value_bytes and bytes + size <= max_bytes then
    value = redis.call('HGET', steps_key(run.id), 'o:' .. name)
    bytes = bytes + size
  end
  steps[#steps + 1] = {name, header, value}
end

for i = 6, #ARGV do add(ARGV[i]) end
if #ARGV < 6 then
  for _, field in ipairs(redis.call('HKEYS', steps_key(run.id))) do
    if string.sub(field, 1, 2) == 's:' then add(string.sub(field, 3)) end
  end
end
return steps
