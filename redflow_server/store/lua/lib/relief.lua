-- Redis refuses a script at its first write when memory is full, unless that write can only free memory. With this
-- one first, a script that moves or frees runs always goes through. Once is enough for all items of a call.
--@include keys
local has_begun = false
local function begin_writes()
  if has_begun then return end
  has_begun = true
  redis.call('ZREM', LEASES, '')
end
