-- Repairs what must not be: runs that are listed as open and stand in no place, and entries without a run.
-- KEYS    prefix
-- ARGS    now status before_seq limit
-- RETURNS next_seq repairs(run_id what); next_seq 0 at the end of the index
-- EMITS   lane, due
-- REPEAT  yes
--@include deadline place relief waits
local status, before, limit = ARGV[2], ARGV[3], tonumber(ARGV[4])

-- A wait of whose end nobody will tell: the outbox does, if the run it is for has ended or is gone.
local function mend_wait(run, name, target)
  local child = read_run(target)
  local is_told = redis.call('SADD', awaiters_key(target), awaiter(run.id, name)) == 0
  if not child or ended(child) then
    if redis.call('ZSCORE', OUTBOX, 'wake ' .. target) then return nil end
    put_off('wake ' .. target)
    return 'wait'
  end
  if is_told and child.awaited then return nil end
  put(child, 'awaited', '1')
  save(child)
  return 'awaiter'
end

-- A run that waits for nothing runs again and finds out. Of thousands of waits each pass looks at some.
local function mend_waits(run)
  local count, repaired = redis.call('HLEN', waits_key(run.id)), nil
  if tonumber(run.openWaits) ~= count then
    put(run, 'openWaits', count > 0 and count or nil)
    repaired = 'waits'
  end
  local waits = count > 0 and redis.call('HRANDFIELD', waits_key(run.id), 100, 'WITHVALUES') or {}
  for i = 1, #waits, 2 do
    repaired = mend_wait(run, waits[i], read_wait(waits[i + 1]).target) or repaired
  end
  if count > 0 then return repaired end
  set_status(run, 'queued')
  lane_push(run)
  return 'wait'
end

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
