-- Recovers: delivers again what nobody settled before its lease ran out. It is the only
-- way back from a lease, and one step: an entry is either settled by who holds it or
-- taken from him here. Those whose turn is longest ago come first.
--
-- KEYS  1 body  2 state  3 history  4 leases
-- ARGV  1 most messages, at most 100  2 lease in microseconds  3 nonce of this claim
--       4 instance
-- Returns {0, row, row, ...}; see row in entry.lua.
proceed(KEYS[4])
local t = now()
local out = {0}
for _, n in ipairs(redis.call('ZRANGEBYSCORE', KEYS[4], '-inf', t, 'LIMIT', 0, ARGV[1])) do
  local e = read(KEYS[2], n)
  local element = redis.call('HGET', KEYS[1], n)
  if e and element then
    -- Its holder died while it was isolated, which counts; in company it does not.
    if e[HELD] == 1 and e[ISOLATED] == 1 then e[CRASHES] = e[CRASHES] + 1 end
    e[TOKEN] = e[TOKEN] + 1
    e[NONCE] = ARGV[3]
    e[ATTEMPTS] = e[ATTEMPTS] + 1
    e[SUSPECT], e[HELD], e[ISOLATED], e[CLAIMED], e[INSTANCE] = 1, 1, 1, t, ARGV[4]
    local raw = pack(e)
    redis.call('HSET', KEYS[2], n, raw)
    redis.call('ZADD', KEYS[4], t + tonumber(ARGV[2]), n)
    out[#out + 1] = row(n, raw, element, KEYS[3], true)
  else
    redis.call('ZREM', KEYS[4], n)
  end
end
return out
