-- trim removes memories of ids and records that ran out, or adds up deaths by time.
--
-- KEYS as in lib.lua, one queue or none
-- ARGV 1 at most, 2 "" or the place to go on at with the deaths, "0" from the start
-- Returns {memories, records}, or {place to go on at}, which is "0" at the end. Deaths are
-- looked through once a minute.
if #ARGV > 1 and ARGV[2] ~= '' then
  local q, minute = queue(0), string.format('%.0f', math.floor(now / MINUTE))
  if ARGV[2] == '0' then
    if call('EXISTS', q.de) == 0 or call('HGET', q.c, 'folded') == minute then return { '0' } end
    call('HSET', q.c, 'folded', minute)
  end
  local page = call('HSCAN', q.de, ARGV[2], 'COUNT', 50)
  for i = 1, #page[2], 2 do
    local series = page[2][i + 1]
    local folded = fold(series)
    if folded == '' then
      call('HDEL', q.de, page[2][i])
    elseif folded ~= series then
      call('HSET', q.de, page[2][i], folded)
    end
  end
  return { page[1] }
end
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
