-- Publishes messages: into the waiting list, or among the delayed ones.
--
-- KEYS  1 waiting  2 seq  3 body  4 state  5 fresh  6 wake  7 ids  8 forget
-- ARGV  five a message:
--       id      the publisher's, or "" for one that was made
--       hash    of kind, key and body, where the publisher chose the id
--       delay   in microseconds
--       at      earliest delivery, microseconds since 1970, or 0
--       rest    of the element: length of the id, id, and what only the client reads
-- Returns for each 0 (published), 1 (it was there) or 2 (its id has another message).
local t = now()
local stamp = string.format('%016.0f', t)
local results, push, delayed, named, here = {}, {}, {}, {}, {}
for i = 1, #ARGV, 5 do
  local id, hash, code, flag = ARGV[i], ARGV[i + 1], 0, 'g'
  if id ~= '' then
    flag = 'c'
    local known = here[id] or redis.call('HGET', KEYS[7], id)
    if known then
      local ends = redis.call('ZSCORE', KEYS[8], id)
      if not ends or here[id] or tonumber(ends) > t then
        code = known == hash and 1 or 2
      end
    end
    if code == 0 then
      here[id] = hash
      named[#named + 1] = id
      named[#named + 1] = hash
    end
  end
  if code == 0 then
    local element = MAGIC .. flag .. stamp .. ARGV[i + 4]
    local due = math.max(t + tonumber(ARGV[i + 2]), tonumber(ARGV[i + 3]))
    if due > t then
      delayed[#delayed + 1] = {due, element}
    else
      push[#push + 1] = element
    end
  end
  results[#results + 1] = code
end
-- What a full server refuses comes first.
if #push > 0 then
  redis.call('LPUSH', KEYS[1], unpack(push))
  if redis.call('EXISTS', KEYS[6]) == 0 then redis.call('LPUSH', KEYS[6], '1') end
end
for _, d in ipairs(delayed) do
  local n = redis.call('INCR', KEYS[2])
  redis.call('HSET', KEYS[3], n, d[2])
  redis.call('HSET', KEYS[4], n, pack(new_entry(d[2], t)))
  redis.call('ZADD', KEYS[5], d[1], n)
end
if #named > 0 then
  redis.call('HSET', KEYS[7], unpack(named))
  for i = 1, #named, 2 do redis.call('ZREM', KEYS[8], named[i]) end
  -- Forget what is old, a little faster than new ids come.
  local old = redis.call('ZRANGEBYSCORE', KEYS[8], '-inf', t, 'LIMIT', 0, #named)
  if #old > 0 then
    redis.call('HDEL', KEYS[7], unpack(old))
    redis.call('ZREM', KEYS[8], unpack(old))
  end
end
return results
