-- Runs a transition for each of many items, which came as count and arguments, after the shared ARGV[1]. An item that
-- raises gets its error as its answer; the others are not touched by it.
local answers, at = {}, 2
while at <= #ARGV do
  local count = tonumber(ARGV[at])
  -- Not by unpack: a result may come with more steps than Lua's stack has room for.
  local arguments = {ARGV[1]}
  for i = 1, count do arguments[i + 1] = ARGV[at + i] end
  local worked, answer = pcall(transition, arguments)
  if not worked then answer = {err = type(answer) == 'table' and answer.err or answer} end
  answers[#answers + 1] = answer
  at = at + count + 1
end
return answers
