-- The name of a lane, or of the other one beside it, of runs that are delivered alone.
--@include keys
local function lane_name(queue, workflow, solo) return (solo and 'solo:' or '') .. lp(queue) .. ':' .. lp(workflow) end
