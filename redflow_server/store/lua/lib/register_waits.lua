-- What a wait means: new, open, ended, non_deterministic or too_many_steps. Only reads.
local function judge_wait(run, name, room)
  local there = redis.call('HGET', steps_key(run.id), 's:' .. name)
  if not there then return room > 0 and 'new' or 'too_many_steps' end
  local header = read_header(there)
  if header.kind ~= 'child' then return 'non_deterministic' end
  return header.status == 'waiting' and 'open' or 'ended'
end

-- The answer that refuses all of the waits; nil when they may be registered. Only reads.
local function refuse_waits(run, waits, max_steps)
  if run.phase then return {'not_allowed'} end
  local room = max_steps - redis.call('HLEN', steps_key(run.id)) / 2
  for _, wait in ipairs(waits) do
    wait.verdict = judge_wait(run, wait.name, room)
    if wait.verdict == 'new' then room = room - 1 end
    if wait.verdict == 'non_deterministic' or wait.verdict == 'too_many_steps' then return {wait.verdict, wait.name} end
  end
  return nil
end

-- Registers a wait that was judged new, and starts its run; a wait for a run that has ended, or cannot be, is over.
local function await(run, wait)
  local child, refused, id = child_of(run, wait.start)
  local target, at = child and child.id or id, string.format('%.0f', now)
  redis.call('HSET', steps_key(run.id), 's:' .. wait.name, write_header({status = 'waiting', kind = 'child',
    seq = wait.seq, attempt = run.attempt, final = '0', startedAt = at, finishedAt = '', size = '0', target = target,
    meta = ''}), 'o:' .. wait.name, '')
  redis.call('HSET', waits_key(run.id), wait.name, table.concat({'child', at, target}, '|'))
  put(run, 'openWaits', (tonumber(run.openWaits) or 0) + 1)
  if refused then return resolve(run, wait.name, failed_with(refused, target)) end
  if ended(child) and not is_full() then
    local outcome = outcome_of(child)
    count_effect(#outcome.value)
    return resolve(run, wait.name, outcome)
  end
  redis.call('SADD', awaiters_key(target), awaiter(run.id, wait.name))
  if ended(child) then return put_off('wake ' .. target) end
  put(child, 'awaited', '1')
  save(child)
end

-- Only runs that are to be started are refused when memory is full: then nothing has been written before.
local function register_waits(run, waits)
  local starts = false
  for _, wait in ipairs(waits) do
    local start = wait.start
    local attaches = wait.verdict ~= 'new' or start.workflow == '' or read_run(start.id) or
      (start.key ~= '' and find_by_key(start.workflow, start.key))
    if not attaches then starts = true end
  end
  if not starts then begin_writes() end
  for _, wait in ipairs(waits) do
    if wait.verdict == 'new' then await(run, wait) end
  end
  put(run, 'acked', '1')
  mark_started(run)
end
