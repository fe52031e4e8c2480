-- The time of an open wait has come: a sleep is over, no event has come, or what it waits for took too long.
--@include event_memory
local function timed_out(name, wait)
  local what = wait.kind == 'child' and 'for run ' .. wait.target or 'for its token'
  local message = cjson.encode('step "' .. name .. '" has waited ' .. what .. ' longer than its time-out')
  return {status = 'failed', meta = '', value = '{"type":"TimeoutError","message":' .. message .. ',"kind":"timeout"}'}
end

local function time_out(run, name, wait)
  local is_failure = wait.kind == 'child' or wait.kind == 'token'
  resolve(run, name, is_failure and timed_out(name, wait) or NOTHING)
  release_child(run, wait)
end
