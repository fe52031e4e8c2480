-- Emits an event: all runs of its subscribers, or none. What one script cannot start stands on record, and a loop of
-- every gateway goes on with it. Waits hear of it too, but not of one for later. An event is kept for as long as a repeat of it, by
-- its id or key, has to be answered.
--@include deliver emitted leave_to_fan_out remember subscribers
local function emit(event)
  local before = emitted_before(event)
  if before then
    keep_emitted(event, before.id)
    return before.id, before.run_ids, before.id == event.id and 1 or 0
  end
  local is_due = (tonumber(event.available_at) or 0) <= now
  if is_due then event.number = string.format('%.0f', redis.call('INCR', EVENT_SEQ)) end
  local workflows, gone = subscribers_of(event)
  local size, run_ids = slice_of(event.payload), subscriber_ids(event.id, workflows)
  redis.call('HSET', emitted_key(event.id), 'name', event.name, 'runIds', run_ids)
  for _, workflow in ipairs(gone) do redis.call('SREM', event_workflows_key(event.name), workflow) end
  if #workflows <= size then
    for _, workflow in ipairs(workflows) do start_subscriber(event, workflow, '') end
  else
    leave_to_fan_out(event, workflows, size, run_ids)
  end
  keep_emitted(event, event.id)
  if is_due then
    remember(event, event.number)
    deliver(event.number, event.channel, '-inf')
  end
  return event.id, run_ids, 1
end
