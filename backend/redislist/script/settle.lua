-- Settles claims, each if its token is still the entry's. Nothing is searched: every
-- item costs the same, however many are in flight.
--
-- KEYS  1 body  2 state  3 history  4 leases  5 fresh  6 retry  7 redrive  8 dead  9 deadids
--       10 ids  11 forget
-- ARGV  1 how long ids that publishers chose are remembered, in microseconds, then six an
--       item:
--       n                the entry
--       claim            token.nonce|
--       outcome          1 done  2 retry  3 release  4 dead  5 repeat  6 drop
--       after            in microseconds, of 2, 3 and 5
--       reason           of 4
--       failure          as JSON, or ""
-- Returns for each 0 (settled), 1 (the lease was lost) or 2 (there is no such entry).
local DONE, RETRY, RELEASE, DEAD, REPEAT, DROP = 1, 2, 3, 4, 5, 6
proceed(KEYS[4])
local t = now()
local remember = tonumber(ARGV[1])
local results, over, failed, free, names, ends, lanes = {}, {}, {}, {}, {}, {}, {{}, {}, {}}
local changed, leases, deaths, deadids = {}, {}, {}, {}
local function add(list, a, b)
  list[#list + 1] = a
  list[#list + 1] = b
end

-- record keeps the first and the last failure.
local function record(n, failure)
  if failure == '' then return end
  local raw = redis.call('HGET', KEYS[3], n)
  local s = raw and cmsgpack.unpack(raw)
  if s then s[2] = failure else s = {failure, ''} end
  redis.call('HSET', KEYS[3], n, cmsgpack.pack(s))
end

-- finish ends an entry.
local function finish(n, raw, claim)
  over[#over + 1] = n
  if string.sub(claim, 1, 2) ~= '1.' then failed[#failed + 1] = n end -- the first claim has no failure history
  if string.sub(raw, 2, 2) == 'c' then
    local id = unpack_state(raw)[ID]
    if remember > 0 then add(ends, t + remember, id) else names[#names + 1] = id end
  end
end

-- keep makes an entry wait again, or a dead letter.
local function keep(n, raw, outcome, after, reason, failure)
  local e = unpack_state(raw)
  e[HELD], e[ISOLATED] = 0, 0
  if outcome == RELEASE and e[SUSPECT] == 1 then -- it stays one, and is claimed in isolation
    add(leases, t + after, n)
  elseif outcome == DEAD then
    e[REASON], e[DIED] = reason, t
    add(deaths, t, n)
    add(deadids, id_of(n, e, redis.call('HGET', KEYS[1], n)), n)
  else
    if outcome == RETRY then
      e[LANE], e[SUSPECT] = 1, 0
    elseif outcome == REPEAT then
      e[LANE], e[SUSPECT], e[GENERATION] = 0, 0, e[GENERATION] + 1
      e[ATTEMPTS], e[FAILURES], e[CRASHES], e[SINCE] = 0, 0, 0, t
      failed[#failed + 1] = n
    end
    add(lanes[e[LANE] + 1], t + after, n)
  end
  if outcome == RELEASE then
    e[ATTEMPTS] = e[ATTEMPTS] - 1
  elseif outcome ~= REPEAT and failure ~= '' then
    e[FAILURES] = e[FAILURES] + 1
  end
  if outcome ~= REPEAT then record(n, failure) end
  add(changed, n, pack(e))
end

local done = {}
for i = 2, #ARGV, 6 do
  local n, claim = ARGV[i], ARGV[i + 1]
  local raw = redis.call('HGET', KEYS[2], n)
  if not raw then
    results[#results + 1] = 2
  elseif done[n] or not held_by(raw, claim) then
    results[#results + 1] = 1
  else
    local outcome = tonumber(ARGV[i + 2])
    done[n] = true
    free[#free + 1] = n
    if outcome == DONE or outcome == DROP then
      finish(n, raw, claim)
    else
      keep(n, raw, outcome, tonumber(ARGV[i + 3]), tonumber(ARGV[i + 4]), ARGV[i + 5])
    end
    results[#results + 1] = 0
  end
end

-- Where it goes comes before where it leaves: what breaks off half way is claimed again.
local due = {KEYS[5], KEYS[6], KEYS[7]}
if #changed > 0 then redis.call('HSET', KEYS[2], unpack(changed)) end
for lane = 1, 3 do
  if #lanes[lane] > 0 then redis.call('ZADD', due[lane], unpack(lanes[lane])) end
end
if #deaths > 0 then
  redis.call('ZADD', KEYS[8], unpack(deaths))
  redis.call('HSET', KEYS[9], unpack(deadids))
end
if #free > 0 then redis.call('ZREM', KEYS[4], unpack(free)) end
if #leases > 0 then redis.call('ZADD', KEYS[4], unpack(leases)) end
if #failed > 0 then redis.call('HDEL', KEYS[3], unpack(failed)) end
if #over > 0 then
  redis.call('HDEL', KEYS[2], unpack(over))
  redis.call('HDEL', KEYS[1], unpack(over))
end
if #names > 0 then redis.call('HDEL', KEYS[10], unpack(names)) end
if #ends > 0 then redis.call('ZADD', KEYS[11], unpack(ends)) end
return results
