-- The delay before the attempt after this one. `jitter` is a random number in [0, 1).
local function backoff_ms(policy, attempt, jitter)
  local initial, multiplier, maximum, ratio = string.match(policy or '', '^(%S+) (%S+) (%S+) (%S+)$')
  if not initial then return math.floor(math.min(30000, 250 * 2 ^ (attempt - 1)) + 100 * jitter) end
  local grown = math.min(1e300, tonumber(multiplier) ^ (attempt - 1))  -- nothing times infinity were no number
  local delay = math.min(tonumber(maximum), tonumber(initial) * grown)
  return math.floor(delay + delay * tonumber(ratio) * jitter)
end
