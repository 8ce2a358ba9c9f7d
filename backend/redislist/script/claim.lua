-- Delivers what is due in a lane, under a lease by the server's clock.
--
-- KEYS  1 waiting  2 taken  3 seq  4 body  5 state  6 history  7 due set of the lane
--       8 leases  9 wake
-- ARGV  1 lane (0 fresh: the waiting list too)  2 most messages, at most 100
--       3 lease in microseconds  4 nonce of this claim  5 instance  6 most bytes
--       7 the end of the list that is read, RIGHT or LEFT  8 "1" if its elements are payloads of
--       others, also those that begin as ours do
-- Returns {1 if there may be more, row, row, ...}; see row in entry.lua.
proceed(KEYS[8])
local t = now()
local lane, max, lease, most = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[6])
local side, foreign = ARGV[7], ARGV[8] == '1'

-- A script is not undone when it breaks off half way (a right that was taken away, a key
-- of a wrong type). What an earlier claim moved to "taken" then still stands there, behind
-- the number that its first message was to get: either all of them were entered, or none.
if redis.call('EXISTS', KEYS[2]) == 1 then
  local first = tonumber(redis.call('LINDEX', KEYS[2], 0))
  local count = redis.call('LLEN', KEYS[2]) - 1
  if redis.call('HEXISTS', KEYS[5], first) == 1 then
    redis.call('ZADD', KEYS[8], 'inf', LAST)
    for n = first, first + count - 1 do redis.call('ZADD', KEYS[8], 'NX', t, n) end
  else
    for _ = 1, count do redis.call('LMOVE', KEYS[2], KEYS[1], 'RIGHT', side) end
  end
  redis.call('DEL', KEYS[2])
end

local out, bytes, states, bodies = {0}, 0, {}, {}
local ends = {'inf', LAST}
local function deliver(n, raw, element, failed)
  states[#states + 1] = n
  states[#states + 1] = raw
  ends[#ends + 1] = t + lease
  ends[#ends + 1] = n
  bytes = bytes + #element
  out[#out + 1] = row(n, raw, element, KEYS[6], failed)
end

local function claimed(e)
  e[TOKEN] = e[TOKEN] + 1
  e[NONCE] = ARGV[4]
  e[ATTEMPTS] = e[ATTEMPTS] + 1
  e[HELD], e[ISOLATED], e[CLAIMED], e[INSTANCE] = 1, 0, t, ARGV[5]
  return pack(e)
end

local due = redis.call('ZRANGEBYSCORE', KEYS[7], '-inf', t, 'LIMIT', 0, max)
local gone = {}
for _, n in ipairs(due) do
  if bytes > most then break end
  local e = read(KEYS[5], n)
  local element = redis.call('HGET', KEYS[4], n)
  if e and element then deliver(n, claimed(e), element, e[TOKEN] > 1) end
  gone[#gone + 1] = n
end

local count = max - (#out - 1)
local taken = false
if lane == 0 and count > 0 and bytes <= most then
  count = math.min(count, redis.call('LLEN', KEYS[1]))
  if count > 0 then
    taken = true
    local last = redis.call('INCRBY', KEYS[3], count)
    local n = last - count + 1
    redis.call('RPUSH', KEYS[2], n)
    local chosen, same = MAGIC .. 'c', claimed(new_entry('', t))
    while n <= last and bytes <= most do
      local element = redis.call('LMOVE', KEYS[1], KEYS[2], side, 'RIGHT')
      local raw = same
      if foreign then
        if string.sub(element, 1, 3) == MAGIC then raw = claimed(foreign_entry(n, t)) end
      elseif string.sub(element, 1, 4) == chosen then
        raw = claimed(new_entry(element, t))
      end
      deliver(n, raw, element, false)
      bodies[#bodies + 1] = n
      bodies[#bodies + 1] = element
      n = n + 1
    end
  end
end

if #states > 0 then
  if #bodies > 0 then redis.call('HSET', KEYS[4], unpack(bodies)) end
  redis.call('HSET', KEYS[5], unpack(states))
  redis.call('ZADD', KEYS[8], unpack(ends))
end
if #gone > 0 then redis.call('ZREM', KEYS[7], unpack(gone)) end
if taken then
  redis.call('DEL', KEYS[2])
  if redis.call('EXISTS', KEYS[1]) == 0 then redis.call('DEL', KEYS[9]) end
end
if #out > max or bytes > most then out[1] = 1 end
return out
