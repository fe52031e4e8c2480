-- Redis refuses a script at its first write when memory is full, unless that write can only free memory. With this
-- one first, a script that moves or frees runs always goes through.
local function begin_writes() redis.call('ZREM', LEASES, '') end
