-- Lists runs, newest first, from the indexes that the filters name.
-- KEYS    prefix
-- ARGS    now workflow limit offset before_seq ...statuses(status)
-- RETURNS next_seq records(id flat); next_seq 0 on the last page
-- REPEAT  yes
--@include run
local workflow, limit, offset, before = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5]
local heads, CHUNK = {}, 100

local function refill(head)
  local max = head.last and string.format('(%.0f', head.last) or (before ~= '' and '(' .. before or '+inf')
  head.page, head.at = redis.call('ZREVRANGEBYSCORE', head.key, max, '-inf', 'WITHSCORES', 'LIMIT', 0, CHUNK), 1
  return #head.page > 0
end

for i = 6, #ARGV do
  local head = {key = workflow == '' and status_key(ARGV[i]) or workflow_status_key(ARGV[i], workflow)}
  if refill(head) then heads[#heads + 1] = head end
end

-- Takes the newest run of all heads.
local function next_run()
  local best, number = nil, -1
  for i, head in ipairs(heads) do
    local seq = tonumber(head.page[head.at + 1])
    if seq > number then best, number = i, seq end
  end
  if not best then return nil end
  local head = heads[best]
  local id = head.page[head.at]
  head.last, head.at = number, head.at + 2
  if head.at > #head.page and not refill(head) then table.remove(heads, best) end
  return id, number
end

for _ = 1, offset do
  if not next_run() then return {0, {}} end
end
local records, last = {}, 0
while #records < limit do
  local id, number = next_run()
  if not id then return {0, records} end
  last = number
  if read_run(id) then records[#records + 1] = {id, redis.call('HGETALL', run_key(id))} end
end
return {#heads > 0 and last or 0, records}
