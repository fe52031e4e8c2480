-- Every key of the store; keys.py says what each one holds. A script gets only the lines whose names it uses.
local P = KEYS[1]
local function lp(part) return #part .. ':' .. part end
local CONFIG = P .. ':config'
local RUN_SEQ = P .. ':run-seq'
local LANE_SEQ = P .. ':lane-seq'
local LANES = P .. ':lanes'
local SCHEDULED = P .. ':scheduled'
local LEASES = P .. ':leases'
local DEADLINES = P .. ':deadlines'
local TIMERS = P .. ':timers'
local REAP_LAST = P .. ':reap:last'
local REAP_NOT_BEFORE = P .. ':reap:not-before'
local WORKFLOWS = P .. ':workflows'
local SESSIONS = P .. ':sessions'
local OUTBOX = P .. ':outbox'
local FAN_OUTS = P .. ':fan-outs'
local EVENT_SEQ = P .. ':event-seq'
local EVENT_MEMORY = P .. ':event-memory'
local EVENT_BYTES = P .. ':event-bytes'
local EVENTS_DROPPED = P .. ':events-dropped'
local DELIVERIES = P .. ':deliveries'
local CRON_DEF = P .. ':cron:def'
local CRON_NEXT = P .. ':cron:next'
local CRON_LAST = P .. ':cron:last'
local CRON_SKIPPED = P .. ':cron:skipped'
local CRON_PROBLEM = P .. ':cron:problem'
local WAKEUPS = P .. ':wakeups'
local function run_key(id) return P .. ':run:' .. id end
local function data_key(id) return P .. ':run:' .. id .. ':data' end
local function steps_key(id) return P .. ':run:' .. id .. ':steps' end
local function waits_key(id) return P .. ':run:' .. id .. ':waits' end
local function awaiters_key(id) return P .. ':run:' .. id .. ':awaiters' end
local function cursors_key(id) return P .. ':run:' .. id .. ':cursors' end
local function children_key(id) return P .. ':run:' .. id .. ':children' end
local function lane_key(name) return P .. ':lane:' .. name end
local function status_key(status) return P .. ':runs:status:' .. status end
local function workflow_status_key(status, workflow) return P .. ':workflow-runs:' .. status .. ':' .. workflow end
local function finished_key(status) return P .. ':finished:' .. status end
local function idempotency_key(workflow, key) return P .. ':idempotency:' .. lp(workflow) .. ':' .. lp(key) end
local function workflow_key(name) return P .. ':workflow:' .. name end
local function event_workflows_key(event) return P .. ':event:' .. event .. ':workflows' end
local function emitted_key(id) return P .. ':emitted:' .. id end
local function event_key_key(event, key) return P .. ':event-key:' .. lp(event) .. ':' .. lp(key) end
local function event_log_key(channel) return P .. ':event-log:' .. channel end
local function event_waits_key(channel) return P .. ':event-waits:' .. channel end
local function owner_workflows_key(owner) return P .. ':owner:' .. lp(owner) .. ':workflows' end
local function owner_builds_key(owner) return P .. ':owner:' .. lp(owner) .. ':builds' end
local function session_key(id) return P .. ':session:' .. id end
local function gateway_channel(id) return P .. ':gateway:' .. id end
