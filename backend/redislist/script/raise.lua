-- Takes dead letters by their ids and makes them wait again as a new generation, or
-- removes them.
--
-- KEYS  1 body  2 state  3 history  4 dead  5 deadids  6 redrive  7 ids  8 forget
-- ARGV  1 "redrive" or "drop"  2 how long ids that publishers chose are remembered, in
--       microseconds, then the ids, at most 100
-- Returns for each 0 (it was), or 2 (there is no such dead letter).
proceed(KEYS[4])
local t = now()
local remember = tonumber(ARGV[2])
local results = {}
for i = 3, #ARGV do
  local id = ARGV[i]
  local n = redis.call('HGET', KEYS[5], id)
  local e = n and read(KEYS[2], n)
  if not e or e[DIED] == 0 then
    results[#results + 1] = 2
  else
    if ARGV[1] == 'redrive' then
      e[ATTEMPTS], e[FAILURES], e[CRASHES], e[SUSPECT] = 0, 0, 0, 0
      e[LANE], e[GENERATION], e[REDRIVES] = 2, e[GENERATION] + 1, e[REDRIVES] + 1
      e[REASON], e[DIED] = 0, 0
      redis.call('HSET', KEYS[2], n, pack(e))
      redis.call('ZADD', KEYS[6], t, n)
    elseif e[ID] ~= '' then
      if remember > 0 then
        redis.call('ZADD', KEYS[8], t + remember, e[ID])
      else
        redis.call('HDEL', KEYS[7], e[ID])
      end
    end
    redis.call('ZREM', KEYS[4], n)
    redis.call('HDEL', KEYS[5], id)
    redis.call('HDEL', KEYS[3], n)
    if ARGV[1] == 'drop' then
      redis.call('HDEL', KEYS[2], n)
      redis.call('HDEL', KEYS[1], n)
    end
    results[#results + 1] = 0
  end
end
return results
