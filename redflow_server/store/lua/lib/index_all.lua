-- The same as `set_status` for many runs of one workflow and one status, in four commands.
--@include save
local function set_status_of_all(runs, status)
  local was, workflow, ids, entries = runs[1].status, runs[1].workflow, {}, {}
  for i, run in ipairs(runs) do
    if not run.seq then put(run, 'seq', redis.call('INCR', RUN_SEQ)) end
    put(run, 'status', status)
    ids[i], entries[2 * i - 1], entries[2 * i] = run.id, run.seq, run.id
  end
  redis.call('ZREM', status_key(was), unpack(ids))
  redis.call('ZREM', workflow_status_key(was, workflow), unpack(ids))
  redis.call('ZADD', status_key(status), unpack(entries))
  redis.call('ZADD', workflow_status_key(status, workflow), unpack(entries))
  return ids
end
