-- A run has come further: what was counted against it counts no more. `fruitful` are its deliveries until then.
--@include save
local function progress(run)
  for _, field in ipairs({'losses', 'undelivered', 'solo'}) do put(run, field, nil) end
  if (tonumber(run.deliveries) or 0) > 1 then put(run, 'fruitful', run.deliveries) end
end
