-- Tells what is due and what will be. It changes nothing.
--
-- KEYS  1 waiting  2 taken  3 fresh  4 retry  5 redrive  6 leases  7 dead
-- Returns {now, waiting, delayed fresh, retry, redrive, processing, dead, and the first
-- time of fresh, retry, redrive and leases, each -1 if there is none}.
local function first(key)
  local f = redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')
  return f[2] and f[1] ~= LAST and tonumber(f[2]) or -1
end
local left = redis.call('LLEN', KEYS[2]) -- of a claim that broke off, with a number before it
return {now(), redis.call('LLEN', KEYS[1]) + math.max(left - 1, 0),
  redis.call('ZCARD', KEYS[3]), redis.call('ZCARD', KEYS[4]), redis.call('ZCARD', KEYS[5]),
  math.max(redis.call('ZCARD', KEYS[6]) - 1, 0), redis.call('ZCARD', KEYS[7]),
  first(KEYS[3]), first(KEYS[4]), first(KEYS[5]), first(KEYS[6])}
