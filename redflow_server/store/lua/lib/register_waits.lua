-- Registers waits that were judged. Only runs that are to be started are refused when memory is full: then nothing has been
-- written before. Of a race whose first wait is over at once the rest does not begin.
--@include await join_race relief starts_run take_up
local function register_waits(run, waits)
  local starts, decided = false, {}
  for _, wait in ipairs(waits) do starts = starts or starts_run(wait) end
  if not starts then begin_writes() end
  run.is_asking = true
  for _, wait in ipairs(waits) do
    if wait.verdict == 'open' then join_race(run, wait) end
    if wait.verdict == 'ended' and wait.group ~= '' then decided[wait.group] = true end
  end
  for group in pairs(decided) do
    local open = (tonumber(run.openWaits) or 0) - withdraw_rivals(run, group)
    put(run, 'openWaits', open > 0 and open or nil)
  end
  for _, wait in ipairs(waits) do
    if wait.verdict == 'new' and decided[wait.group] then
      lose_at_once(run, wait)
    elseif wait.verdict == 'new' then
      await(run, wait)
      local is_over = redis.call('HEXISTS', waits_key(run.id), wait.name) == 0
      if wait.group ~= '' and is_over then decided[wait.group] = true end
    end
  end
  take_up(run)
end
