-- trim removes memories of ids and records that ran out.
--
-- KEYS as in lib.lua, one queue or none
-- ARGV 1 at most
-- Returns {memories, records}.
local limit, memories = math.min(tonumber(ARGV[1]), 500), 0
if #KEYS > FIRST then
  memories = forget(queue(0), limit)
  return { memories, 0 }
end
local gone = call('ZRANGEBYSCORE', KEYS[6], '-inf', now, 'LIMIT', 0, limit)
for _, name in ipairs(gone) do
  call('ZREM', KEYS[6], name)
  call('ZREM', KEYS[5], name)
  call('HDEL', KEYS[4], name)
end
return { 0, #gone }
