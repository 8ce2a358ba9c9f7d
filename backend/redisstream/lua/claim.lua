-- claim delivers what is due in one lane, or suspects, dead letters or what expired.
--
-- KEYS as in lib.lua, one queue
-- ARGV 1 the queue's name, 2 its tag, 3 what (0-2 a lane, "isolated", "dead", "expired"),
--      4 at most, 5 lease, 6 nonce of this claim, 7 instance, 8 oldest age (expired),
--      9 how many that a filter passes over are skipped before (from the call before),
--      10 kinds only (or ""), 11 except kinds, 12 except ids: packed lists
-- Returns now, how many a filter passed over, whether there may be more, a list with
-- rank, place, holder, raw (a blob, or an entry's fields) for each, one with entry and raw
-- (an envelope, or an entry's fields) for each entry that was never claimed before, whose
-- holder is "1 1 0 0 nonce instance", and the ranks of those, if there are both kinds.
local q = queue(0)
local name, tag, what, max, lease, nonce, instance = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5]), ARGV[6], ARGV[7]
local maxage, skip = tonumber(ARGV[8]), tonumber(ARGV[9])
local PAGE = 200

local function set(packed)
  if packed == '' then return nil end
  local s = {}
  for _, v in ipairs(cmsgpack.unpack(packed)) do s[v] = true end
  return s
end
local kinds, except, exceptids = set(ARGV[10]), set(ARGV[11]), set(ARGV[12])
local filtered = kinds or except or exceptids
local function passes(kind, id)
  return not (kinds and not kinds[kind]) and not (except and except[kind]) and not (exceptids and exceptids[id])
end

local function head(set) return tonumber(call('ZRANGE', set, 0, 0, 'WITHSCORES')[2]) or math.huge end
local firstlease = math.min(head(q.le), head(q.lt))
-- Text, because a number would be made text again for each command that takes it.
local till = string.format('%.0f', now + lease)
local out, count, skipped, more = {}, 0, 0, 0
local untils, holders, deaduntils = {}, {}, {}

-- deliver gives out one message.
local function deliver(place, token, attempts, crashes, flags, raw)
  local holder = token .. ' ' .. attempts .. ' ' .. crashes .. ' ' .. flags .. ' ' .. nonce .. ' ' .. instance
  local t = string.sub(place, 1, 1) == 'd' and deaduntils or untils
  t[#t + 1], t[#t + 2] = till, place
  holders[#holders + 1], holders[#holders + 2] = place, holder
  local n = #out
  count = count + 1
  out[n + 1], out[n + 2], out[n + 3], out[n + 4] = count, place, holder, raw
end

-- state returns token, attempts, crashes and suspicion of a place, as its newest holder
-- left them: a claim that ended without a settlement makes a suspect, and counts a crash
-- if it was isolated.
local function state(place, h)
  local holder = call('HGET', q.lh, place)
  if not holder then return h.token, h.attempts, h.crashes, has(h.flags, SUSPECT) end
  local token, attempts, crashes, flags = string.match(holder, '^(%d+) (%d+) (%d+) (%d+) ')
  crashes = tonumber(crashes)
  if has(tonumber(flags), 1) then crashes = crashes + 1 end
  return tonumber(token), tonumber(attempts), crashes, true
end

-- indexed claims an indexed waiting message.
local function indexed(id, isolated)
  local blob = call('HGET', q.w, id)
  local h = parse(blob)
  local token, attempts, crashes, suspect = state('i' .. id, h)
  local m = member(h.seq, id)
  call('ZREM', q[h.lane], m)
  call('ZREM', q.x, m)
  call('SREM', q.b, id)
  deliver('i' .. id, token + 1, attempts + 1, crashes, (isolated and 1 or 0) + (suspect and 2 or 0), blob)
end

-- first claims an entry of the stream for the first time. Most claims are this: it says
-- no more than Go cannot know.
local fresh, ranks, seams = {}, {}, false
local function first(id, fields)
  local raw, n = fields, #fresh
  local size, ours = sizeof(fields)
  if ours then
    raw = fields[2]
  else
    add(q, 'xs', 1)
    add(q, 'published', 1)
    add(q, 'bytes', size)
  end
  count = count + 1
  ranks[#ranks + 1] = count
  fresh[n + 1], fresh[n + 2] = id, raw
end

-- lease writes the leases of the fresh: one for all, if they are many and in one piece.
local BATCH, LARGEST = 8, 2 ^ 48
local function leasefresh()
  local n = #fresh / 2
  if n == 0 then return end
  local ms, seq = entryms(fresh[2 * n - 1])
  if n >= BATCH and not seams and ms < LARGEST and seq < LARGEST then
    local m = hexid(fresh[1]) .. hexid(fresh[2 * n - 1]) .. nonce .. instance
    call('HSET', q.lh, 'b' .. nonce, n, 'm' .. nonce, m)
    call('ZADD', q.lt, till, m)
    call('ZADD', q.lb, 0, m)
    add(q, 'bl', n)
    return
  end
  local holder = '1 1 0 0 ' .. nonce .. ' ' .. instance
  for i = 1, 2 * n, 2 do
    local place, u, h = 's' .. fresh[i], #untils, #holders
    untils[u + 1], untils[u + 2] = till, place
    holders[h + 1], holders[h + 2] = place, holder
  end
end

-- explode gives all that is left of a batch leases of their own. It asks the group, which
-- needs no bodies, and the stream too if the group does not know all.
local function explode(m)
  local function name(at)
    return string.format('%.0f-%.0f', tonumber(string.sub(m, at, at + 11), 16), tonumber(string.sub(m, at + 12, at + 24), 16))
  end
  local from, to, stop = name(1), name(26), call('ZSCORE', q.lt, m)
  local left = tonumber(call('HGET', q.lh, 'b' .. string.sub(m, 51, 62)))
  local seen, places = {}, {}
  local function collect(list)
    if list.err or #list == 0 then return end
    local asked = {}
    for i = 1, #list do asked[i] = 's' .. list[i][1] end
    local owned = call('HMGET', q.lh, unpack(asked))
    for i = 1, #asked do
      if not owned[i] and not seen[asked[i]] then
        seen[asked[i]] = true
        places[#places + 1] = asked[i]
      end
    end
  end
  collect(redis.pcall('XPENDING', q.s, GROUP, from, to, 1000))
  if #places ~= left then collect(call('XRANGE', q.s, from, to, 'COUNT', 1000)) end
  local holder = batchtail(m)
  for i = 1, #places do
    call('HSET', q.lh, places[i], holder)
    call('ZADD', q.le, stop, places[i])
  end
  add(q, 'bl', -left)
  add(q, 'sl', #places - left) -- what neither knows is gone
  endbatch(q, m)
end

-- explodedue explodes batches whose lease ran out, at most a few, the oldest first, until
-- there are enough places that can be recovered.
local function explodedue()
  for _, m in ipairs(call('ZRANGEBYSCORE', q.lt, '-inf', now, 'LIMIT', 0, 3)) do
    if call('ZCOUNT', q.le, '-inf', '(' .. call('ZSCORE', q.lt, m)) >= max + skip then return end
    explode(m)
  end
end

-- again claims what an earlier claim of an entry left behind.
local function again(place, isolated)
  local e = call('XRANGE', q.s, string.sub(place, 2), string.sub(place, 2))[1]
  local token, attempts, crashes, flags = string.match(call('HGET', q.lh, place), '^(%d+) (%d+) (%d+) (%d+) ')
  if has(tonumber(flags), 1) then crashes = crashes + 1 end
  if e then pcall(call, 'XCLAIM', q.s, GROUP, instance, 0, e[1], 'JUSTID') end
  deliver(place, token + 1, attempts + 1, tonumber(crashes), (isolated and 1 or 0) + 2, e and e[2] or {})
end

local function idof(m) return string.sub(m, 14) end

-- fits says whether a place's message passes the filter.
local function fits(place)
  local id = string.sub(place, 2)
  if not filtered then return true end
  if string.sub(place, 1, 1) == 's' then
    local e = call('XRANGE', q.s, id, id)[1]
    return passes(e and look(e[2]) or '', exceptids and uuid(id, tag))
  end
  local blob = call('HGET', string.sub(place, 1, 1) == 'd' and q.d or q.w, id)
  local _, kind = kindkey(blob, HEADLEN + 1)
  return passes(kind, id)
end

-- aside makes an entry that a filter passed over an indexed message.
local function aside(e)
  local _, size, foreign, key = look(e[2])
  if foreign then return false end -- only Go can read it
  local ms = entryms(e[1])
  local h = { lane = 0, flags = 0, reason = 0, attempts = 0, crashes = 0, failures = 0, token = 0, rev = 0,
    due = ms * 1000, published = ms * 1000, expires = 0, died = 0, seq = 0, cseq = 0 }
  h.size, h.key = size, key
  ackdel(q, e[1])
  add(q, 'xd', 1)
  add(q, 'bytes', -size)
  putwaiting(q, uuid(e[1], tag), h, e[2][2])
  return true
end

-- after says whether entry a is behind entry b.
local function after(a, b)
  local am, as = entryms(a)
  local bm, bs = entryms(b)
  return am > bm or am == bm and as > bs
end

-- read takes up to n entries that nobody was given, by the consumer group, and heals it:
-- a group that is gone begins again where it was, one that was moved is put back.
local function read(n, pos)
  local function readgroup()
    return redis.pcall('XREADGROUP', 'GROUP', GROUP, instance, 'COUNT', n, 'STREAMS', q.s, '>')
  end
  local got = readgroup()
  if got and got.err then
    if not string.find(got.err, 'NOGROUP', 1, true) then error(got.err) end
    call('XGROUP', 'CREATE', q.s, GROUP, pos)
    got = readgroup()
  elseif not got and #call('XRANGE', q.s, '(' .. pos, '+', 'COUNT', 1) > 0 then
    call('XGROUP', 'SETID', q.s, GROUP, pos)
    got = readgroup()
  end
  return got and got[1] and got[1][2] or {}
end

-- peek returns entries that nobody was given, without taking them.
local function peek(n, pos) return call('XRANGE', q.s, '(' .. pos, '+', 'COUNT', n) end

-- entries claims up to n entries of the stream. They come in order, so if the first is
-- behind the place of the group, all are; else the group was moved back, and what is
-- claimed already is passed over.
local function entries(n, pos)
  local list = read(n, pos)
  if #list == 0 then return 0, pos end
  local known = not after(list[1][1], pos)
  seams = seams or known
  local before = count
  for i = 1, #list do
    local e = list[i]
    if not known or after(e[1], pos) or not held(q, 's' .. e[1]) then
      if not filtered or passes(look(e[2]), exceptids and uuid(e[1], tag)) or not aside(e) then
        first(e[1], e[2])
      end
    end
  end
  add(q, 'sl', count - before)
  local last = list[#list][1]
  if after(last, pos) then
    pos = last
    call('HSET', q.c, 'pos', pos)
  end
  return #list, pos
end

-- undelay makes due, in their order, what lies ahead of the clock in a set and nobody delayed:
-- the clock went back. A call looks at a page; where it went on is kept until the end of the set.
local UNDELAYED = 300
local redue = false
local function undelay(name, set, hash)
  if count >= max then return end
  local latest, place = 'latest' .. name, 'ahead' .. name
  local top = call('HGET', q.c, latest)
  if not top or tonumber(top) <= now then return end
  local from, passed = string.match(call('HGET', q.c, place) or '', '^(%d+) (%d+)$')
  if not from or tonumber(from) <= now then from, passed = string.format('%.0f', now + 1), 0 end
  local page = call('ZRANGEBYSCORE', set, from, top, 'WITHSCORES', 'LIMIT', passed, UNDELAYED)
  local found = {}
  for i = 1, #page, 2 do
    local id = idof(page[i])
    local blob = call('HGET', hash, id)
    if not has(string.byte(blob, 2), DELAYED) then
      found[#found + 1] = { page[i], id, blob }
    elseif page[i + 1] == from then
      passed = passed + 1
    else
      from, passed = page[i + 1], 1
    end
  end
  for i = 1, #found do
    local m, id, blob = unpack(found[i])
    local due = now - #found + i
    call('HSET', hash, id, string.sub(blob, 1, 24) .. struct.pack('<d', due) .. string.sub(blob, 33))
    call('ZADD', set, due, m)
  end
  redue = redue or #found > 0
  if #page == 2 * UNDELAYED then
    call('HSET', q.c, place, string.format('%.0f', from) .. ' ' .. passed)
    more = 1
  else
    call('HSET', q.c, latest, string.format('%.0f', now))
    call('HDEL', q.c, place)
    if #found > 0 then more = 1 end
  end
end

local function claimlane(lane)
  local due = call('ZRANGEBYSCORE', q[lane], '-inf', now, 'WITHSCORES', 'LIMIT', skip, PAGE)
  local pos = lane == 0 and call('EXISTS', q.s) == 1 and (call('HGET', q.c, 'pos') or '0-0')
  local examined, dry = 0, not pos
  for i = 1, #due, 2 do
    if count >= max then break end
    -- Entries that are older than this one go first.
    if not dry then
      local older, head = 0, peek(max - count, pos)
      if #head == 0 then dry = true end
      for j = 1, #head do
        if entryms(head[j][1]) * 1000 <= tonumber(due[i + 1]) then older = j else break end
      end
      if older > 0 then
        local n
        n, pos = entries(older, pos)
        if n == 0 then dry = true end
      end
      if count >= max then break end
    end
    local id = idof(due[i])
    if fits('i' .. id) then indexed(id, false) else skipped = skipped + 1 end
  end
  if #due == 2 * PAGE and count < max then more = 1 end
  while not dry and more == 0 and count < max and examined < 500 do
    local n
    n, pos = entries(max - count, pos)
    if n == 0 then dry = true end
    examined = examined + n
  end
  if not dry and count < max and examined >= 500 then more = 1 end
  undelay(lane, q[lane], q.w)
end

-- claimisolated claims suspects: those whose lease ran out, and those that were given back.
local function claimisolated()
  local list = {}
  local function collect(key, prefix)
    local got = call('ZRANGEBYSCORE', key, '-inf', now, 'WITHSCORES', 'LIMIT', skip, PAGE)
    for i = 1, #got, 2 do
      list[#list + 1] = { prefix and prefix .. idof(got[i]) or got[i], tonumber(got[i + 1]) }
    end
    if #got == 2 * PAGE then more = 1 end
  end
  explodedue()
  collect(q.le)
  collect(q.x, 'i')
  table.sort(list, function(a, b) return a[2] < b[2] or a[2] == b[2] and a[1] < b[1] end)
  for i = 1, #list do
    if count >= max then more = 0 break end
    local place = list[i][1]
    if not fits(place) then
      skipped = skipped + 1
    elseif string.sub(place, 1, 1) == 's' then
      again(place, true)
    else
      indexed(string.sub(place, 2), true)
    end
  end
  undelay('x', q.x, q.w)
end

-- claimdead claims dead letters: those that are due and those whose lease ran out.
local function claimdead()
  local list = {}
  local got = call('ZRANGEBYSCORE', q.dc, '-inf', now, 'WITHSCORES', 'LIMIT', skip, PAGE)
  for i = 1, #got, 2 do list[#list + 1] = { 'd' .. idof(got[i]), tonumber(got[i + 1]), got[i] } end
  if #got == 2 * PAGE then more = 1 end
  got = call('ZRANGEBYSCORE', q.dl, '-inf', now, 'WITHSCORES', 'LIMIT', 0, PAGE)
  for i = 1, #got, 2 do list[#list + 1] = { got[i], tonumber(got[i + 1]) } end
  table.sort(list, function(a, b) return a[2] < b[2] or a[2] == b[2] and (a[3] or '') < (b[3] or '') end)
  for i = 1, #list do
    if count >= max then more = 0 break end
    local place = list[i][1]
    if fits(place) then
      local id = string.sub(place, 2)
      local blob = call('HGET', q.d, id)
      local h = parse(blob)
      local token, attempts = state(place, h)
      call('ZREM', q.dc, member(h.seq, id))
      deliver(place, token + 1, attempts + 1, h.crashes, 0, blob)
    else
      skipped = skipped + 1
    end
  end
  undelay('d', q.dc, q.d)
end

-- free says that nobody holds an indexed message now.
local function free(id)
  local till = call('ZSCORE', q.le, 'i' .. id)
  return not till or tonumber(till) <= now
end

local function claimexpired()
  local seen = {}
  local function try(m)
    local id = idof(m)
    if not seen[id] and count < max and free(id) then
      if fits('i' .. id) then
        seen[id] = true
        indexed(id, false)
      else
        skipped = skipped + 1
      end
    end
  end
  for _, m in ipairs(call('ZRANGEBYSCORE', q.e, '-inf', now, 'LIMIT', skip, PAGE)) do try(m) end
  if maxage <= 0 or count >= max then return end
  local cutoff = now - maxage
  for _, m in ipairs(call('ZRANGEBYSCORE', q.pb, '-inf', cutoff, 'LIMIT', skip, PAGE)) do try(m) end
  -- Entries of the stream stand there in order of their age.
  explodedue()
  for _, place in ipairs(call('ZRANGEBYSCORE', q.le, '-inf', now, 'LIMIT', 0, PAGE)) do
    if count < max and string.sub(place, 1, 1) == 's' and entryms(string.sub(place, 2)) * 1000 <= cutoff and fits(place) then
      again(place, false)
    end
  end
  if call('EXISTS', q.s) == 0 then return end
  local pos = call('HGET', q.c, 'pos') or '0-0'
  local old = 0
  for j, e in ipairs(peek(max - count, pos)) do
    if count < max and entryms(e[1]) * 1000 <= cutoff then old = j else break end
  end
  if old > 0 then entries(old, pos) end
end

if what == 'isolated' then
  claimisolated()
elseif what == 'dead' then
  claimdead()
elseif what == 'expired' then
  claimexpired()
else
  claimlane(tonumber(what))
end

leasefresh()
-- What was claimed is written with one command for each set, in pages that unpack can take.
local function each(t, size, f)
  for i = 1, #t, size do f(unpack(t, i, math.min(i + size - 1, #t))) end
end
-- Small hashes and sets are lists that are searched from end to end: a large batch makes
-- them tables first, by a name that is too long for a list.
local LONG = string.rep('-', 65)
local large = #holders > 32 and call('HLEN', q.lh) < 1024
if large then
  call('HSET', q.lh, LONG, '')
  if #untils > 0 then call('ZADD', q.le, 0, LONG) end
end
each(holders, 2000, function(...) call('HSET', q.lh, ...) end)
each(untils, 2000, function(...) call('ZADD', q.le, ...) end)
if large then
  call('HDEL', q.lh, LONG)
  if #untils > 0 then call('ZREM', q.le, LONG) end
end
each(deaduntils, 2000, function(...) call('ZADD', q.dl, ...) end)
q.changed = redue or #untils + #fresh > 0 and now + lease < firstlease
flush(q, name)
return { string.format('%.0f', now), skipped, more, out, fresh, #out > 0 and ranks or {} }
