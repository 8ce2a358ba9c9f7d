-- What the scripts share. It is put before each of them.
--
-- KEYS[1..6] belong to the store: 1 notify (stream of names of queues that changed),
-- 2 queues (set), 3 meta (hash), 4 records (hash), 5 record keys (sorted, by name),
-- 6 record expiries. Then NK keys for each queue of the call, in the order of queue().
--
-- A message that nothing has happened to is an entry of the queue's stream and nothing
-- else. All others are "indexed": a blob (fixed head, then the envelope) in a hash, and
-- members of sorted sets. Numbers of time are microseconds.
local call = redis.call
local NK, FIRST = 26, 6
local HEAD, HEADLEN = '<BBBBI4I4I4I4I4dddddd', 72
local SUSPECT, ORDERED, REMEMBERED, DELAYED = 1, 2, 4, 8
local FIELD = 'redrive'
local GROUP = 'redrive'

local clock = call('TIME')
local now = clock[1] * 1000000 + clock[2]

local function has(flags, bit) return math.floor(flags / bit) % 2 == 1 end

-- queue returns the n-th queue of the call, from 0.
local function queue(n)
  local k = FIRST + n * NK
  return {
    s = KEYS[k + 1], w = KEYS[k + 2], d = KEYS[k + 3],
    [0] = KEYS[k + 4], [1] = KEYS[k + 5], [2] = KEYS[k + 6],
    le = KEYS[k + 7], lh = KEYS[k + 8], x = KEYS[k + 9], e = KEYS[k + 10], pb = KEYS[k + 11],
    ch = KEYS[k + 12], co = KEYS[k + 13], b = KEYS[k + 14], c = KEYS[k + 15],
    r = KEYS[k + 16], rf = KEYS[k + 17], dd = KEYS[k + 18], dc = KEYS[k + 19], dl = KEYS[k + 20],
    dlq = KEYS[k + 21], di = KEYS[k + 22], lt = KEYS[k + 23], lb = KEYS[k + 24],
    ca = KEYS[k + 25], de = KEYS[k + 26], delta = {}, deaths = {}, stood = {}, changed = false,
  }
end

-- add notes a change of a counter; flush writes them all.
local function add(q, name, n)
  q.delta[name] = (q.delta[name] or 0) + n
end

-- Deaths of a cause by time: a list of buckets, the oldest first, of width (1 a minute, 2 an
-- hour, 3 a day), start in minutes since 1970, and deaths. It is in a hash by cause: the
-- reason as a byte, and the signature.
local BUCKET, BUCKETLEN, MINUTE = '<BI4I4', 9, 60000000
local WIDTHS, KEPT = { 1, 60, 1440 }, { 60, 4320, 43200 }
-- The store bounds the causes that have a list of their own; each partition has its share.
local SERIES, OTHER, MOSTBUCKETS = 5000, '\0other', 200

-- widthof returns the width of the bucket for what is so many minutes old, nil for none.
local function widthof(age)
  for w = 1, 3 do
    if age < KEPT[w] then return w end
  end
end

-- fold adds up buckets that are too old for their width, and drops those that are too old for
-- any.
local function fold(series)
  local list, known = {}, {}
  for at = 1, #series, BUCKETLEN do
    local w, start, n = struct.unpack(BUCKET, series, at)
    local least = widthof(now / MINUTE - start)
    if least then
      w = math.max(w, least)
      start = start - start % WIDTHS[w]
      local name = w .. ' ' .. start
      if not known[name] then
        known[name] = { w, start, 0 }
        list[#list + 1] = known[name]
      end
      known[name][3] = known[name][3] + n
    end
  end
  table.sort(list, function(a, b) return a[2] < b[2] or a[2] == b[2] and a[1] > b[1] end)
  for i = 1, #list do list[i] = struct.pack(BUCKET, unpack(list[i])) end
  return table.concat(list)
end

-- died notes a death of a cause for flush.
local function died(q, cause, at)
  local w = widthof((now - at) / MINUTE)
  if not w then return end
  local start = math.floor(at / MINUTE)
  local name = struct.pack('<BI4', w, start - start % WIDTHS[w])
  q.deaths[cause] = q.deaths[cause] or {}
  q.deaths[cause][name] = (q.deaths[cause][name] or 0) + 1
end

-- bury adds the deaths of a cause to its buckets. Most are of the newest bucket, or of one
-- behind it.
local function bury(q, cause, buckets)
  local series = call('HGET', q.de, cause)
  if not series and call('HLEN', q.de) - call('HEXISTS', q.de, OTHER) >= math.floor(SERIES / (call('HGET', KEYS[3], 'partitions') or 1)) then
    cause = OTHER
    series = call('HGET', q.de, cause)
  end
  series = series or ''
  for name, n in pairs(buckets) do
    local last = #series - BUCKETLEN + 1
    local w, start = struct.unpack('<BI4', name)
    local lastw, laststart, count = 0, -1, 0
    if last > 0 then lastw, laststart, count = struct.unpack(BUCKET, series, last) end
    if lastw == w and laststart == start then
      series = string.sub(series, 1, last - 1) .. struct.pack(BUCKET, w, start, count + n)
    else
      series = series .. struct.pack(BUCKET, w, start, n)
      if laststart >= start or #series > MOSTBUCKETS * BUCKETLEN then series = fold(series) end
    end
  end
  call('HSET', q.de, cause, series)
end

local function flush(q, name)
  for field, n in pairs(q.delta) do
    if n ~= 0 then call('HINCRBY', q.c, field, n) end
  end
  for cause, buckets in pairs(q.deaths) do bury(q, cause, buckets) end
  for set in pairs(q.stood) do
    local field = 'latest' .. set
    if now > tonumber(call('HGET', q.c, field) or 0) then call('HSET', q.c, field, string.format('%.0f', now)) end
  end
  q.delta, q.deaths, q.stood = {}, {}, {}
  if q.changed then
    call('SADD', KEYS[2], name)
    call('XADD', KEYS[1], 'MAXLEN', '~', 2000, '*', 'q', name)
  end
end

-- kindkey reads what the scripts need of an envelope that begins at a place: the size
-- that counts, kind and key. What the disk changed is read as far as it goes.
local function kindkey(text, at)
  local size, n = struct.unpack('<I4I2', text, at + 1)
  if at + 8 + n > #text then return size, '', '' end
  local kind = string.sub(text, at + 7, at + 6 + n)
  local m = struct.unpack('<I2', text, at + 7 + n)
  return size, kind, string.sub(text, at + 9 + n, at + 8 + n + m)
end

local function parse(blob)
  local h = {}
  h.lane, h.flags, h.reason, h.spare, h.attempts, h.crashes, h.failures, h.token, h.rev,
    h.due, h.published, h.expires, h.died, h.seq, h.cseq = struct.unpack(HEAD, blob)
  h.size, h.kind, h.key = kindkey(blob, HEADLEN + 1)
  return h
end

local function pack(h, envelope)
  return struct.pack(HEAD, h.lane, h.flags, h.reason, 0, h.attempts, h.crashes, h.failures,
    h.token, h.rev, h.due, h.published, h.expires, h.died, h.seq, h.cseq) .. envelope
end

local function nextseq(q) return call('HINCRBY', q.c, 'seq', 1) end

local function member(seq, id) return string.format('%013x', seq) .. id end
local function chainmember(h, id) return h.key .. '\0' .. string.format('%013x', h.cseq) .. id end

-- leader returns the chain member and the id of the first ordered message of a key.
local function leader(q, key)
  local first = call('ZRANGEBYLEX', q.co, '[' .. key .. '\0', '(' .. key .. '\1', 'LIMIT', 0, 1)[1]
  if first then return first, string.sub(first, #key + 15) end
end

-- dueof returns when a message in a set is due. What nobody delayed is due at once, also if
-- the clock went back since it was put in. The latest such time of a set (0-2 a lane, "x" released
-- suspects, "d" dead letters) is kept: as long as it is not ahead of the clock, nothing is.
local function dueof(q, set, h)
  if has(h.flags, DELAYED) then return h.due end
  q.stood[set] = true
  return math.min(h.due, now)
end

-- stand puts an indexed waiting message where it can be claimed, or behind its key.
local function stand(q, id, h)
  q.changed = true
  if has(h.flags, ORDERED) and leader(q, h.key) ~= chainmember(h, id) then
    call('SADD', q.b, id)
  elseif has(h.flags, SUSPECT) then
    call('ZADD', q.x, dueof(q, 'x', h), member(h.seq, id))
  else
    call('ZADD', q[h.lane], dueof(q, h.lane, h), member(h.seq, id))
  end
end

local function join(q, id, h)
  if h.key == '' then return end
  if h.cseq == 0 then h.cseq = nextseq(q) end
  local m = chainmember(h, id)
  call('ZADD', q.ch, 0, m)
  if has(h.flags, ORDERED) then call('ZADD', q.co, 0, m) end
end

-- unchain takes a message out of its key's chain and lets the next one go.
local function unchain(q, id, h)
  if h.key == '' or h.cseq == 0 then return end
  local m = chainmember(h, id)
  call('ZREM', q.ch, m)
  if call('ZREM', q.co, m) == 0 then return end
  local _, nextid = leader(q, h.key)
  if nextid and call('SREM', q.b, nextid) == 1 then
    stand(q, nextid, parse(call('HGET', q.w, nextid)))
  end
end

-- unlease ends the lease of a place, whoever holds it.
local function unlease(q, loc)
  call('ZREM', q.le, loc)
  call('ZREM', q.dl, loc)
  call('HDEL', q.lh, loc)
end

-- detach takes an indexed waiting message from where it stands, not from its chain.
local function detach(q, id, h)
  local m = member(h.seq, id)
  call('ZREM', q[h.lane], m)
  if has(h.flags, SUSPECT) then call('ZREM', q.x, m) end
  if h.cseq > 0 then call('SREM', q.b, id) end
  unlease(q, 'i' .. id)
end

-- takewaiting takes an indexed waiting message away. Its chain is the caller's.
local function takewaiting(q, id, h)
  detach(q, id, h)
  local m = member(h.seq, id)
  call('ZREM', q.pb, m)
  if h.expires > 0 then call('ZREM', q.e, m) end
  call('HDEL', q.w, id)
  add(q, 'n' .. h.lane, -1)
  add(q, 'bytes', -h.size)
end

-- The cause of a dead letter is its reason, a byte, and its signature. The set of causes has
-- a member for each dead letter, in the order of cause, then of death, as the set of
-- dead letters has it.
local function causeof(h, signature) return string.char(h.reason) .. signature end
local function causemember(cause, h, id) return cause .. '\0' .. string.format('%014x', h.died) .. member(h.seq, id) end

local function takedead(q, id, h)
  unlease(q, 'd' .. id)
  local m = member(h.seq, id)
  call('ZREM', q.dd, m)
  call('ZREM', q.dc, m)
  call('HDEL', q.d, id)
  local entry, signature = string.match(call('HGET', q.di, id) or '', '^(%S+) (.*)$')
  if entry then
    call('XDEL', q.dlq, entry)
    call('HDEL', q.di, id)
    call('ZREM', q.ca, causemember(causeof(h, signature), h, id))
  end
  add(q, 'dead' .. h.reason, -1)
end

-- look returns the kind of an entry, what it counts, and whether it is foreign: not an
-- envelope of ours.
local function look(fields)
  if #fields == 2 and fields[1] == FIELD and #fields[2] >= 10 and string.byte(fields[2]) == 1 then
    local ok, size, kind, key = pcall(kindkey, fields[2], 1)
    if ok then return kind, size, false, key end
  end
  local n = 0
  for i = 1, #fields do n = n + #fields[i] end
  return '', n, true, ''
end

-- sizeof returns what an entry counts, and whether it is one of ours. It looks no further
-- than Go does, which has to come to the same.
local function sizeof(fields)
  if #fields == 2 and fields[1] == FIELD and #fields[2] >= 10 then
    local v, a, b, c, d = string.byte(fields[2], 1, 5)
    if v == 1 then return a + b * 256 + c * 65536 + d * 16777216, true end
  end
  local n = 0
  for i = 1, #fields do n = n + #fields[i] end
  return n, false
end

-- entryms returns the two numbers of a stream entry's id.
local function entryms(entry)
  local a, b = string.match(entry, '^(%d+)-(%d+)$')
  return tonumber(a), tonumber(b)
end

-- A batch is one lease over the entries that one claim delivered for the first time. It
-- spares each of them a lease and a holder of its own: their holder is the batch's. Its
-- name is first entry, last entry (25 digits each), nonce (12) and instance. The hash of
-- holders keeps how many entries it still has ("b" and the nonce), its name ("m") and
-- whether one of its entries has got a lease of its own ("o"). Batches never overlap: they
-- are made of what is behind the place of the group.
local function hexid(entry)
  local ms, seq = entryms(entry)
  return string.format('%012x%013x', ms, seq)
end

local function batchtail(m) return '1 1 0 0 ' .. string.sub(m, 51, 62) .. ' ' .. string.sub(m, 63) end

-- batchof returns the batch that an entry without a holder of its own belongs to.
local function batchof(q, entry)
  local at = hexid(entry)
  local m = call('ZREVRANGEBYLEX', q.lb, '(' .. at .. 'g', '-', 'LIMIT', 0, 1)[1]
  if m and string.sub(m, 26, 50) >= at then return m end
end

local function endbatch(q, m)
  local nonce = string.sub(m, 51, 62)
  call('ZREM', q.lt, m)
  call('ZREM', q.lb, m)
  call('HDEL', q.lh, 'b' .. nonce, 'm' .. nonce, 'o' .. nonce)
end

-- leavebatch notes that n entries are no more the batch's.
local function leavebatch(q, m, n)
  add(q, 'bl', -n)
  if call('HINCRBY', q.lh, 'b' .. string.sub(m, 51, 62), -n) <= 0 then endbatch(q, m) end
end

-- pending says that the group knows an entry as claimed, also when the stream has lost it.
local function pending(q, entry)
  local p = redis.pcall('XPENDING', q.s, GROUP, entry, entry, 1)
  return not p.err and #p > 0
end

-- own gives an entry of a batch a lease and a holder of its own, and returns the holder;
-- nil if it is in no batch.
local function own(q, entry)
  local m = batchof(q, entry)
  if not m or #call('XRANGE', q.s, entry, entry) == 0 and not pending(q, entry) then return end
  local holder = batchtail(m)
  call('HSET', q.lh, 's' .. entry, holder, 'o' .. string.sub(m, 51, 62), 1)
  call('ZADD', q.le, call('ZSCORE', q.lt, m), 's' .. entry)
  leavebatch(q, m, 1)
  return holder
end

-- held returns the holder of a place and the end of the lease, without a change.
local function held(q, place)
  local who = call('HGET', q.lh, place)
  if not who and string.sub(place, 1, 1) == 's' then
    local m = batchof(q, string.sub(place, 2))
    if m then return batchtail(m), call('ZSCORE', q.lt, m) end
  end
  return who, call('ZSCORE', string.sub(place, 1, 1) == 'd' and q.dl or q.le, place)
end

-- holderof is held for a script that will change the place: the holder becomes its own.
local function holderof(q, place)
  local who = call('HGET', q.lh, place)
  if not who and string.sub(place, 1, 1) == 's' then who = own(q, string.sub(place, 2)) end
  return who
end

-- ackdel ends an entry for the group and deletes it: by one command where the server has
-- it, which leaves what the group does not know.
local function ackdel(q, entry)
  if XACKDEL then
    local done = redis.pcall('XACKDEL', q.s, GROUP, 'IDS', 1, entry)
    if not done.err and done[1] == 1 then return end
  end
  call('XACK', q.s, GROUP, entry)
  call('XDEL', q.s, entry)
end

-- takeentry takes an entry off the stream; size is what its holder knows of one that the
-- stream has lost. Before a foreign one was claimed it was not counted.
local function takeentry(q, entry, size)
  local place = 's' .. entry
  local e = call('XRANGE', q.s, entry, entry)[1]
  local ours = true
  if e then size, ours = sizeof(e[2]) end
  if call('HEXISTS', q.lh, place) == 1 then
    add(q, 'sl', -1)
    add(q, 'bytes', -size)
    unlease(q, place)
  elseif ours then
    add(q, 'bytes', -size)
  else
    add(q, 'xs', 1)
    add(q, 'published', 1)
  end
  ackdel(q, entry)
  add(q, 'xd', 1)
end

-- putwaiting makes a message an indexed waiting one. h.seq and h.cseq are kept unless 0.
local function putwaiting(q, id, h, envelope)
  if h.seq == 0 then h.seq = nextseq(q) end
  h.rev = h.seq % 4294967296
  join(q, id, h)
  local m = member(h.seq, id)
  call('HSET', q.w, id, pack(h, envelope))
  call('ZADD', q.pb, h.published, m)
  if h.expires > 0 then call('ZADD', q.e, h.expires, m) end
  add(q, 'n' .. h.lane, 1)
  add(q, 'bytes', h.size)
  stand(q, id, h)
end

-- putdead makes a message a dead letter, with a readable entry in the dead-letter stream.
local function putdead(q, id, h, envelope, fields, signature)
  if h.seq == 0 then h.seq = nextseq(q) end
  h.rev = h.seq % 4294967296
  if has(h.flags, ORDERED) and call('HGET', q.c, 'release') ~= '1' then join(q, id, h) end
  local m = member(h.seq, id)
  call('HSET', q.d, id, pack(h, envelope))
  call('ZADD', q.dd, h.died, m)
  call('ZADD', q.dc, dueof(q, 'd', h), m)
  local entry = call('XADD', q.dlq, '*', unpack(fields))
  call('HSET', q.di, id, entry .. ' ' .. signature)
  call('ZADD', q.ca, 0, causemember(causeof(h, signature), h, id))
  add(q, 'dead' .. h.reason, 1)
  q.changed = true
end

-- Memories of ids that callers chose: "hash outcome reason at until", until 0 while the
-- message lives.
local function recall(q, id)
  local v = call('HGET', q.r, id)
  if not v then return end
  local hash, outcome, reason, at, till = string.match(v, '^(%x+) (%d+) (%d+) (%d+) (%d+)$')
  if tonumber(till) > 0 and tonumber(till) <= now then return end
  return hash, outcome, reason, at
end

local function remember(q, id, hash, outcome, reason, ended)
  local till = ended and now + tonumber(call('HGET', q.c, 'remember') or 86400000000) or 0
  call('HSET', q.r, id, string.format('%s %d %d %.0f %.0f', hash, outcome, reason, now, till))
  if ended then call('ZADD', q.rf, till, id) else call('ZREM', q.rf, id) end
end

local function remembered(q, id, outcome, reason, ended)
  local hash = recall(q, id)
  if hash then remember(q, id, hash, outcome, reason, ended) end
end

-- forget removes memories that ran out, at most limit.
local function forget(q, limit)
  local gone = call('ZRANGEBYSCORE', q.rf, '-inf', now, 'LIMIT', 0, limit)
  if #gone > 0 then
    call('ZREM', q.rf, unpack(gone))
    call('HDEL', q.r, unpack(gone))
  end
  return #gone
end

-- uuid is the id of a message that is named by its entry: a UUIDv7 of the entry's time,
-- its number and the queue's tag. Redis's Lua has no 64-bit integers, so it is put
-- together of parts.
local function uuid(entry, tag)
  local ms, seq = entryms(entry)
  local hi = math.floor(ms / 65536)
  return string.format('%08x-%04x-7%03x-%04x-%s', hi, ms - hi * 65536, seq % 4096,
    32768 + math.floor(seq / 4096) % 16384, tag)
end
