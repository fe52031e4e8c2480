-- Reads whether a run has ended; if not, has the gateway told of its end.
-- KEYS    prefix
-- ARGS    now run_id gateway
-- RETURNS status | missing
-- REPEAT  yes
-- BATCH   yes
--@include relief run save
local run = read_run(ARGV[2])
if not run then return 'missing' end
if ended(run) then return run.status end
local gateways = {}
for gateway in string.gmatch(run.waiters or '', '%S+') do
  if gateway ~= ARGV[3] then gateways[#gateways + 1] = gateway end
end
if #gateways >= 32 then table.remove(gateways, 1) end
gateways[#gateways + 1] = ARGV[3]
begin_writes()
put(run, 'waiters', table.concat(gateways, ' '))
save(run)
return run.status
