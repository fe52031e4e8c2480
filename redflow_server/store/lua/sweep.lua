-- Repairs what must not be: runs that are listed as open and stand in no place, and entries without a run.
-- KEYS    prefix
-- ARGS    now status before_seq limit
-- RETURNS next_seq repairs(run_id what); next_seq 0 at the end of the index
-- EMITS   lane, due
-- REPEAT  yes
--@include deadline mend_waits place relief
local status, before, limit = ARGV[2], ARGV[3], tonumber(ARGV[4])

local function mend(run)
  local repaired = nil
  local has_deadline = (run.startDeadline or run.runDeadline or run.failingDeadline) and not run.timeoutRequestedAt
  if has_deadline and not redis.call('ZSCORE', DEADLINES, run.id) then
    set_deadline(run)
    repaired = 'deadline'
  end
  if run.status == 'waiting' then repaired = mend_waits(run) or repaired end
  return place(run) or repaired
end

local max = before ~= '' and '(' .. before or '+inf'
local page = redis.call('ZREVRANGEBYSCORE', status_key(status), max, '-inf', 'WITHSCORES', 'LIMIT', 0, limit)
local repairs = {}
begin_writes()
for i = 1, #page, 2 do
  local run, repaired = read_run(page[i]), nil
  if not run or run.status ~= status then
    redis.call('ZREM', status_key(status), page[i])
    if run then redis.call('ZREM', workflow_status_key(status, run.workflow), run.id) end
    repaired = 'entry'
  end
  if run then repaired = mend(run) or repaired end
  if repaired then repairs[#repairs + 1] = {page[i], repaired} end
end
return {#page == 2 * limit and tonumber(page[#page]) or 0, repairs}
