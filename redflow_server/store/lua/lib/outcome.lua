-- What the step that waits for a run gets of its end: status, value and what goes with the value.
--@include keys
local CHILD_ENDS = {
  failed = {type = 'ChildFailedError', kind = 'error', word = ' has failed'},
  canceled = {type = 'ChildCanceledError', kind = 'canceled', word = ' was canceled'},
  missing = {type = 'RunNotFoundError', kind = 'run_not_found', word = ' does not exist'},
  unknown_workflow = {type = 'UnknownWorkflowError', kind = 'unknown_workflow', what = 'workflow ',
    word = ' is not registered, and no queue was named'},
  await_cycle = {type = 'AwaitCycleError', kind = 'await_cycle', word = ' waits for the run that would wait for it'},
  unclear = {type = 'AwaitCycleError', kind = 'await_cycle',
    word = ' and the run that would wait for it have too many waits to rule out a circle'},
}

-- `cause` is a failure as codec.py writes it, and stays as it is.
local function failed_with(ending, name, cause)
  local made = CHILD_ENDS[ending]
  local message = cjson.encode((made.what or 'run ') .. name .. made.word)
  local failure = '{"type":"' .. made.type .. '","message":' .. message .. ',"kind":"' .. made.kind .. '"'
  return {status = 'failed', meta = '', value = failure .. (cause and ',"cause":' .. cause or '') .. '}'}
end

local function outcome_of(run)
  local data = redis.call('HMGET', data_key(run.id), 'outputJson', 'outputMeta', 'errorJson')
  if run.status ~= 'succeeded' then return failed_with(run.status, run.id, data[3]) end
  return {status = 'succeeded', value = data[1] or '', meta = data[1] and (data[2] or '') or 'none'}
end
