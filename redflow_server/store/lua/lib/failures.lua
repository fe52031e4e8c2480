-- Failures that the store itself decides on, as codec.py reads them.
local FAILURES = {
  run_timeout = '{"type":"RunTimeoutError","message":"the run took longer than its run time-out","kind":"timeout"}',
  start_timeout = '{"type":"StartTimeoutError","message":"no worker started the run within its start time-out","kind":"timeout"}',
  worker_lost = '{"type":"WorkerLostError","message":"workers were lost with the run too often","kind":"worker_lost"}',
  unknown_workflow = '{"type":"UnknownWorkflowError","message":"no worker knows the workflow","kind":"unknown_workflow"}',
}
