-- Forgets events that were remembered for long enough.
-- KEYS    prefix
-- ARGS    now
-- RETURNS 1 while there may be more to forget
-- REPEAT  yes
--@include forget relief
begin_writes()
return forget_events() and 1 or 0
