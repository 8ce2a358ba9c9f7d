-- counts tells what a queue holds. It is O(1) but for due messages, which are counted up
-- to a bound by the sorted sets themselves.
--
-- KEYS as in lib.lua, one queue
-- ARGV none
-- Returns {now, entries of the stream, entries claimed, running leases, leases that ran
-- out, released suspects, blocked, due, {oldest due of each lane and of suspects, oldest
-- death} or "" each, indexed waiting, dead, next due or "", lanes due, suspects due, last
-- entry that there ever was, counters, dead letters that are counted by cause, whether leases are
-- an estimate, entries that were ever added to the stream or "" (servers before 7.0)}.
local q = queue(0)
local about, stream = redis.pcall('XINFO', 'STREAM', q.s), {}
if about.err and not string.find(about.err, 'no such key', 1, true) then error(about.err) end
for i = 1, #about, 2 do stream[about[i]] = about[i + 1] end
local entries = stream['length'] or 0
local counters = call('HGETALL', q.c)
local c = {}
for i = 1, #counters, 2 do c[counters[i]] = counters[i + 1] end
local free = entries - tonumber(c.sl or 0)
local SUSPECTS = 3
local due, oldest, nextdue, lanes = 0, {}, nil, 0
local function first(of, t)
  t = tonumber(t)
  if not t then return end
  if t <= now and (not oldest[of] or t < oldest[of]) then oldest[of] = t end
  if not nextdue or t < nextdue then nextdue = t end
  return t <= now
end
local function head(key) return call('ZRANGE', key, 0, 0, 'WITHSCORES')[2] end
if free > 0 then
  local e = call('XRANGE', q.s, '(' .. (c.pos or '0-0'), '+', 'COUNT', 1)[1]
  if e then
    due = free
    first(0, entryms(e[1]) * 1000)
    lanes = 1
  end
end
for lane = 0, 2 do
  if first(lane, head(q[lane])) then
    due = due + call('ZCOUNT', q[lane], '-inf', now)
    if lane > 0 or lanes == 0 then lanes = lanes + 2 ^ lane end
  end
end
-- What nobody delayed is due although it lies ahead of the clock; a claim finds it.
local function undelayed(name, set)
  local top = c['latest' .. name]
  return top and tonumber(top) > now and call('ZCOUNT', set, '(' .. string.format('%.0f', now), top) > 0
end
for lane = 0, 2 do
  if undelayed(lane, q[lane]) then
    first(lane, now)
    if math.floor(lanes / 2 ^ lane) % 2 == 0 then lanes = lanes + 2 ^ lane end
  end
end
local suspects = first(SUSPECTS, head(q.le))
suspects = first(SUSPECTS, head(q.lt)) or suspects
suspects = first(SUSPECTS, head(q.x)) or undelayed('x', q.x) and first(SUSPECTS, now) or suspects

-- left adds up what some batches have left.
local function left(from, to)
  local fields, n = {}, 0
  for _, m in ipairs(call('ZRANGEBYSCORE', q.lt, from, to)) do fields[#fields + 1] = 'b' .. string.sub(m, 51, 62) end
  if #fields == 0 then return 0 end
  for _, v in ipairs(call('HMGET', q.lh, unpack(fields))) do n = n + v end
  return n
end
-- Of thousands of batches, running and lost, how many entries are lost is an estimate.
local inbatches, batches, over = tonumber(c.bl or 0), call('ZCARD', q.lt), call('ZCOUNT', q.lt, '-inf', now)
local lostbatched, guessed = math.floor(inbatches * over / math.max(batches, 1)), 0
if over <= 1000 then
  lostbatched = left('-inf', now)
elseif batches - over <= 1000 then
  lostbatched = inbatches - left('(' .. string.format('%.0f', now), '+inf')
else
  guessed = 1
end
local lost = call('ZCOUNT', q.le, '-inf', now) + lostbatched
due = due + lost + call('ZCOUNT', q.x, '-inf', now)
local function text(t) return t and string.format('%.0f', t) or '' end
return { text(now), entries, tonumber(c.sl or 0), call('ZCARD', q.le) + inbatches - lost, lost, call('ZCARD', q.x), call('SCARD', q.b),
  due, { text(oldest[0]), text(oldest[1]), text(oldest[2]), text(oldest[SUSPECTS]), head(q.dd) or '' }, call('HLEN', q.w), call('HLEN', q.d), text(nextdue), lanes, suspects and 1 or 0, stream['last-generated-id'] or '0-0', counters,
  call('ZCARD', q.ca), guessed, entries > 0 and not stream['entries-added'] and '' or stream['entries-added'] or 0 }
