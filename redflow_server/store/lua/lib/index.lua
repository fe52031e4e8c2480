-- The listing indexes hold each run under its status, and under its status and workflow, by its number.
--@include save
local function unlist(run)
  redis.call('ZREM', status_key(run.status), run.id)
  redis.call('ZREM', workflow_status_key(run.status, run.workflow), run.id)
end

local function list(run)
  if not run.seq then put(run, 'seq', redis.call('INCR', RUN_SEQ)) end
  redis.call('ZADD', status_key(run.status), run.seq, run.id)
  redis.call('ZADD', workflow_status_key(run.status, run.workflow), run.seq, run.id)
end

-- The only way from one status to another.
local function set_status(run, status)
  unlist(run)
  put(run, 'status', status)
  list(run)
end
