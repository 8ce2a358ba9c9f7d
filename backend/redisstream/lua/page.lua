-- page lists messages of one queue in a stable order.
--
-- KEYS as in lib.lua, one queue
-- ARGV 1 section: "s" the stream, "w" indexed waiting, "d" dead, "k" of one key; 2 behind
--      this score or entry ("" from the start), 3 and this member, 4 at most, 5 highest
--      score or "+inf", 6 the key
-- Returns now, then for each {place, raw, holder, end of the lease, blocked, score, member}.
local q = queue(0)
local section, score, last, limit, top = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), ARGV[5]
local out = { string.format('%.0f', now) }

local function show(place, raw, id, at, m)
  local who, till = held(q, place)
  out[#out + 1] = { place, raw, who or '', till or '', call('SISMEMBER', q.b, id), at, m }
end

if section == 's' then
  for _, e in ipairs(call('XRANGE', q.s, score == '' and '-' or '(' .. score, '+', 'COUNT', limit)) do
    show('s' .. e[1], e[2], '', e[1], '')
  end
  return out
end
if section == 'k' then
  local from = last == '' and '[' .. ARGV[6] .. '\0' or '(' .. last
  for _, m in ipairs(call('ZRANGEBYLEX', q.ch, from, '(' .. ARGV[6] .. '\1', 'LIMIT', 0, limit)) do
    local id = string.sub(m, #ARGV[6] + 15)
    local raw = call('HGET', q.w, id)
    show('i' .. id, raw or '', id, '0', m)
  end
  return out
end
local set, hash, prefix = q.pb, q.w, 'i'
if section == 'd' then set, hash, prefix = q.dd, q.d, 'd' end
local list
if score == '' then
  list = call('ZRANGEBYSCORE', set, '-inf', top, 'WITHSCORES', 'LIMIT', 0, limit)
else
  local rank = call('ZRANK', set, last)
  if rank then
    list = call('ZRANGE', set, rank + 1, rank + limit, 'WITHSCORES')
  else
    -- The last one is gone: those of the same score stand in the order of their names.
    list = {}
    local same = call('ZRANGEBYSCORE', set, score, score)
    for _, m in ipairs(same) do
      if m > last and #list < 2 * limit then
        list[#list + 1] = m
        list[#list + 1] = score
      end
    end
    if #list < 2 * limit then
      for _, v in ipairs(call('ZRANGEBYSCORE', set, '(' .. score, '+inf', 'WITHSCORES', 'LIMIT', 0, limit - #list / 2)) do
        list[#list + 1] = v
      end
    end
  end
end
for i = 1, #list, 2 do
  if top ~= '+inf' and tonumber(list[i + 1]) > tonumber(top) then break end
  local id = string.sub(list[i], 14)
  show(prefix .. id, call('HGET', hash, id), id, list[i + 1], list[i])
end
return out
