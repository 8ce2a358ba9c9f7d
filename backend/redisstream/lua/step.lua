-- step changes and adds messages, and writes records, in one atomic step.
--
-- KEYS as in lib.lua, all queues of the step
-- ARGV 1 the queues' names, a packed list, 2 the records to write, a packed list of
--      {name, version, value or false, expires after}, then an operation each, packed:
--
--   change: {"c", queue, place, id, holder or "", active (the lease may hold), rev or -1,
--            what (remove, wait, die), queue to, id to, head, envelope, memory, ledger, fields,
--            emits, ledger to, fresh chain, size that the holder knows, signature}
--   new:    {"n", queue, id, hash or "" (not chosen), what (entry, wait, die), head, envelope,
--            account, fields, signature}
--   range:  {"d", queue, key, up to id, 1: only that one, ""}: the waiting messages of a key, counted
--           as done, the oldest, at most RANGE; its result is {0, where to go on or ""};
--           a sixth element, if not , is where it goes on
--
-- A head is {lane, flags, reason, attempts, crashes, failures, token, due, due is relative,
-- published or 0, expires, died or 0, seq or 0, cseq or 0}. A memory is {outcome
-- or -1, reason, ended, hash for the new place or ""}. A ledger is {name, n, ...}.
-- Returns {0 or 1 for a version conflict, now, results}: a result is {code, entry or hash,
-- lane...}. Codes: 0 done, 1 lease lost, 2 not found, 3 duplicate, 4 conflict, 5 the id is
-- taken by one that is not remembered, 6 leased, 7 changed meanwhile.
local names = cmsgpack.unpack(ARGV[1])
local queues = {}
for i = 1, #names do queues[i] = queue(i - 1) end

local function headof(v, envelope)
  local h = { lane = v[1], flags = v[2], reason = v[3], attempts = v[4], crashes = v[5], failures = v[6],
    token = v[7], rev = 0, due = v[8], published = v[10], expires = v[11], died = v[12], seq = v[13], cseq = v[14] }
  if v[9] == 1 then h.due = math.min(h.due + now, 9007199254740991) end
  if h.published == 0 then h.published = now end
  if h.died == 0 then h.died = now end
  local _
  h.size, _, h.key = kindkey(envelope, 1)
  return h
end

local function count(q, ledger)
  for i = 1, #ledger, 2 do add(q, ledger[i], ledger[i + 1]) end
end

-- forgetremoved forgets an id whose message was archived or dropped, so that it can be put back.
local function forgetremoved(q, id)
  local hash, outcome = recall(q, id)
  if hash and (tonumber(outcome) == 4 or tonumber(outcome) == 6) and call('ZSCORE', q.rf, id) then
    call('HDEL', q.r, id)
    call('ZREM', q.rf, id)
  end
end

-- taken says why an id cannot be used: a code and the hash, or nil.
local function taken(q, id, hash)
  local known = recall(q, id)
  if known then return known == hash and 3 or 4 end
  if call('HEXISTS', q.w, id) == 1 or call('HEXISTS', q.d, id) == 1 then return 5 end
end

local function new(op)
  local _, n, id, hash, what, head, envelope, account, fields, signature, restore = unpack(op)
  local q = queues[n + 1]
  if hash ~= '' then
    forget(q, 2)
    if restore == 1 then forgetremoved(q, id) end
    local code = taken(q, id, hash)
    if code then return { code } end
  end
  add(q, account, 1)
  q.changed = true
  if what == 'entry' then
    local size = kindkey(envelope, 1)
    add(q, 'xs', 1)
    add(q, 'bytes', size)
    return { 0, call('XADD', q.s, '*', FIELD, envelope) }
  end
  local h = headof(head, envelope)
  if h.key ~= '' and call('HGET', q.c, 'order') == '1' then h.flags = h.flags + ORDERED end
  if hash ~= '' then
    h.flags = h.flags + REMEMBERED
    remember(q, id, hash, what == 'die' and 4 or 0, h.reason, false)
  end
  if what == 'die' then
    putdead(q, id, h, envelope, fields, signature)
    died(q, causeof(h, signature), h.died)
  else
    h.reason = 0
    putwaiting(q, id, h, envelope)
  end
  return { 0 }
end

-- leased says that somebody's lease of a place still runs.
local function leased(q, place)
  local set = string.sub(place, 1, 1) == 'd' and q.dl or q.le
  local till = call('ZSCORE', set, place)
  return till and tonumber(till) > now
end

-- there returns the blob of an indexed place, or true for an entry that is there.
local function there(q, place, id)
  local kind = string.sub(place, 1, 1)
  if kind == 's' then
    return #call('XRANGE', q.s, string.sub(place, 2), string.sub(place, 2)) > 0
  end
  return call('HGET', kind == 'd' and q.d or q.w, id)
end

local function change(op)
  local _, n, place, id, holder, active, rev, what, nto, idto, head, envelope, memory, ledger, fields, emits, ledgerto, fresh, size, signature = unpack(op)
  local q, to = queues[n + 1], queues[nto + 1]
  local blob = there(q, place, id)
  local held = holderof(q, place) or ''
  if not blob and held == '' then
    -- It may have gone elsewhere under the same id.
    if call('HEXISTS', q.w, id) == 1 or call('HEXISTS', q.d, id) == 1 then return { active == 1 and 1 or 7 } end
    return { 2 }
  end
  if active == 1 then
    if held ~= holder or holder == '' then return { 1 } end
  else
    if held ~= '' and leased(q, place) then return { 6 } end
    if held ~= holder then return { 7 } end
  end
  local old
  if type(blob) == 'string' then
    old = parse(blob)
    if rev >= 0 and old.rev ~= rev then return { 7 } end
  end
  if what ~= 'remove' and (nto ~= n or idto ~= id) then
    local known = recall(to, idto)
    -- Another partition of the queue may keep the id reserved for this very message.
    if known and names[nto + 1] == names[n + 1] and idto == id and known == (recall(q, id)) then known = nil end
    if call('HEXISTS', to.w, idto) == 1 or call('HEXISTS', to.d, idto) == 1 or known then return { 4 } end
  end
  for _, e in ipairs(emits) do
    if e[4] ~= '' and taken(queues[e[2] + 1], e[3], e[4]) == 4 then return { 4 } end
  end

  local kind, h = string.sub(place, 1, 1), nil
  if what ~= 'remove' then h = headof(head, envelope) end
  if kind == 's' then
    takeentry(q, string.sub(place, 2), size)
  elseif kind == 'i' then
    takewaiting(q, id, old)
  else
    takedead(q, id, old)
  end
  count(q, ledger)
  count(to, ledgerto)
  -- A message keeps its place among those of its key, unless it ends, moves or starts anew.
  local stays = h and old and nto == n and idto == id and fresh == 0 and old.key == h.key and
    not (what == 'die' and (not has(old.flags, ORDERED) or call('HGET', q.c, 'release') == '1'))
  if h then
    if stays then h.cseq = old.cseq else h.cseq = 0 end
    if old and has(old.flags, ORDERED) and nto == n and old.key == h.key and not has(h.flags, ORDERED) then h.flags = h.flags + ORDERED end
    if (nto ~= n or not old or old.key ~= h.key) and h.key ~= '' and call('HGET', to.c, 'order') == '1' and not has(h.flags, ORDERED) then h.flags = h.flags + ORDERED end
    if old and nto == n and idto ~= id and old.key == h.key and fresh == 0 and old.cseq > 0 then
      -- A new id takes over the place of the old one in its chain.
      local m = chainmember(old, id)
      call('ZREM', q.ch, m)
      call('ZREM', q.co, m)
      h.cseq = old.cseq
      stays = true
    end
  end
  local result = { 0 }
  if what == 'die' and h then
    putdead(to, idto, h, envelope, fields, signature)
    if kind ~= 'd' then died(to, causeof(h, signature), h.died) end
  elseif h then
    putwaiting(to, idto, h, envelope)
  end
  if old and not stays then unchain(q, id, old) end
  if memory[1] >= 0 then remembered(q, id, memory[1], memory[2], memory[3] == 1) end
  if memory[4] ~= '' then remember(to, idto, memory[4], 0, 0, false) end
  for _, e in ipairs(emits) do
    local r = new(e)
    result[#result + 1] = r[2] or ''
  end
  return result
end

-- range ends the waiting messages of a key up to one of them, or only that one.
local RANGE = 200
local function range(op)
  local _, n, key, upto, single, behind = unpack(op)
  local q = queues[n + 1]
  local blob = call('HGET', q.w, upto) or call('HGET', q.d, upto)
  if not blob then return { 0 } end
  local last = parse(blob)
  if last.key ~= key or last.cseq == 0 then return { 0 } end
  local till = '[' .. chainmember(last, upto)
  local from = single == 1 and till or '[' .. key .. '\0'
  if behind ~= '' then from = '(' .. behind end
  local list = call('ZRANGEBYLEX', q.ch, from, till, 'LIMIT', 0, RANGE)
  for _, m in ipairs(list) do
    local id = string.sub(m, #key + 15)
    local waiting = call('HGET', q.w, id)
    if waiting then
      local h = parse(waiting)
      takewaiting(q, id, h)
      unchain(q, id, h)
      add(q, 'done', 1)
      remembered(q, id, 1, 0, true)
    end
  end
  return { 0, list[RANGE] ~= chainmember(last, upto) and list[RANGE] or '' }
end

-- Records first: a conflict leaves everything as it is.
local records = cmsgpack.unpack(ARGV[2])
local function version(name)
  local v = call('HGET', KEYS[4], name)
  if not v then return 0 end
  local at, till = struct.unpack('<dd', v)
  if till > 0 and till <= now then return 0 end
  return at
end
for _, w in ipairs(records) do
  if w[2] >= 0 and version(w[1]) ~= w[2] then return { 1, string.format('%.0f', now), {} } end
end
local results = {}
for i = 3, #ARGV do
  local op = cmsgpack.unpack(ARGV[i])
  if op[1] == 'c' then
    results[#results + 1] = change(op)
  elseif op[1] == 'n' then
    results[#results + 1] = new(op)
  else
    results[#results + 1] = range(op)
  end
end
for _, w in ipairs(records) do
  local name, value = w[1], w[3]
  if value then
    local till = w[4] > 0 and now + w[4] or 0
    call('HSET', KEYS[4], name, struct.pack('<dd', call('HINCRBY', KEYS[3], 'record', 1), till) .. value)
    call('ZADD', KEYS[5], 0, name)
    if till > 0 then call('ZADD', KEYS[6], till, name) else call('ZREM', KEYS[6], name) end
  else
    call('HDEL', KEYS[4], name)
    call('ZREM', KEYS[5], name)
    call('ZREM', KEYS[6], name)
  end
end
for i = 1, #queues do flush(queues[i], names[i]) end
return { 0, string.format('%.0f', now), results }
