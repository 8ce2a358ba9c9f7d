-- page lists messages of one queue in a stable order.
--
-- KEYS as in lib.lua, one queue
-- ARGV 1 section: "s" the stream, "w" indexed waiting, "d" dead, "k" of one key; 2 behind
--      this score or entry ("" from the start), 3 and this member, 4 at most, 5 highest
--      score or "+inf", 6 the key, 7 of "d": the cause, or "" for all
-- Returns now, then for each {place, raw, holder, end of the lease, blocked, score, member}.
local q = queue(0)
local section, score, last, limit, top = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), ARGV[5]
local out = { string.format('%.0f', now) }

-- behind compares bytes, as the set does; < and > follow the server's locale.
local function behind(a, b)
  for i = 1, math.min(#a, #b) do
    local x, y = string.byte(a, i), string.byte(b, i)
    if x ~= y then return x > y end
  end
  return #a > #b
end

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
if ARGV[7] ~= '' then
  local cause, from, to = ARGV[7] .. '\0', '', '(' .. ARGV[7] .. '\1'
  if score ~= '' and tonumber(score) >= 0 then from = string.format('%014x', score) .. last end
  if top ~= '+inf' then to = '(' .. cause .. string.format('%014x', top + 1) end
  for _, m in ipairs(call('ZRANGEBYLEX', q.ca, '(' .. cause .. from, to, 'LIMIT', 0, limit)) do
    local died, place = tonumber(string.sub(m, #cause + 1, #cause + 14), 16), string.sub(m, #cause + 15)
    local id = string.sub(place, 14)
    show('d' .. id, call('HGET', q.d, id), id, string.format('%.0f', died), place)
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
    -- The last one is gone: its place is looked for among those of the same score.
    local from = call('ZCOUNT', set, '-inf', '(' .. score)
    local to = from + call('ZCOUNT', set, score, score)
    while from < to do
      local middle = math.floor((from + to) / 2)
      if behind(call('ZRANGE', set, middle, middle)[1], last) then
        to = middle
      else
        from = middle + 1
      end
    end
    list = call('ZRANGE', set, from, from + limit - 1, 'WITHSCORES')
  end
end
for i = 1, #list, 2 do
  if top ~= '+inf' and tonumber(list[i + 1]) > tonumber(top) then break end
  local id = string.sub(list[i], 14)
  show(prefix .. id, call('HGET', hash, id), id, list[i + 1], list[i])
end
return out
