-- reserve remembers ids whose messages stand in other partitions, where their keys do.
--
-- KEYS as in lib.lua, one queue
-- ARGV an id and the hash of its message each
-- Returns for each 0 free or the same message's, 4 of another message, 5 taken by a message
-- that is not remembered.
local q = queue(0)
local result = {}
for i = 1, #ARGV, 2 do
  local id, hash = ARGV[i], ARGV[i + 1]
  local known = recall(q, id)
  local code = 0
  if known then
    code = known == hash and 0 or 4
  elseif call('HEXISTS', q.w, id) == 1 or call('HEXISTS', q.d, id) == 1 then
    code = 5
  else
    remember(q, id, hash, 0, 0, true)
  end
  result[#result + 1] = code
end
return result
