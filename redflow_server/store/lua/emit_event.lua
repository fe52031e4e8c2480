-- Emits an event, or answers the one that its id or key named before.
-- KEYS    prefix
-- ARGS    now event_id event_name payload payload_meta digest available_at key key_ttl_ms
--         channel
-- RETURNS event_id run_ids created; created also when it is the same event again, false when its key names another
-- EMITS   lane, due, finished, resolved, stop
-- REPEAT  yes
-- BATCH   yes
--@include emit
return {emit({id = ARGV[2], name = ARGV[3], payload = ARGV[4], meta = ARGV[5], digest = ARGV[6], available_at = ARGV[7],
  key = ARGV[8], key_ttl = tonumber(ARGV[9]), channel = ARGV[10]})}
