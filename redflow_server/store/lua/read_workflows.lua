-- Reads registry entries by name.
-- KEYS    prefix
-- ARGS    now ...names(name)
-- RETURNS entries, flat; empty for a name that is not registered
-- REPEAT  yes
--@include keys
local entries = {}
for i = 2, #ARGV do entries[#entries + 1] = redis.call('HGETALL', workflow_key(ARGV[i])) end
return entries
