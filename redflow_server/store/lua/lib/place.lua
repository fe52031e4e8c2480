-- Fills in what a record lacks: its listing and its place. Works from the record alone and never moves a run that is
-- placed. Returns what it repaired, or nil.
--@include index lane now run schedule
local function place(run)
  local function lacks(key) return not redis.call('ZSCORE', key, run.id) end
  local repaired = nil
  if lacks(status_key(run.status)) or lacks(workflow_status_key(run.status, run.workflow)) then
    list(run)
    repaired = 'listing'
  end
  if run.status == 'queued' and lacks(lane_key(lane_name(run.queue, run.workflow, run.solo))) then
    lane_push(run)
    repaired = 'lane'
  elseif run.status == 'scheduled' and lacks(SCHEDULED) then
    schedule(run, tonumber(run.availableAt) or now)
    repaired = 'schedule'
  elseif run.status == 'running' and lacks(LEASES) then
    redis.call('ZADD', LEASES, now, run.id)
    repaired = 'lease'
  elseif ended(run) and lacks(finished_key(run.status)) then
    redis.call('ZADD', finished_key(run.status), tonumber(run.finishedAt) or now, run.id)
    repaired = 'retention'
  end
  save(run)
  return repaired
end
