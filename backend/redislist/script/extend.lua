-- Makes leases run for another while from now, where they have not run out.
--
-- KEYS  1 state  2 leases
-- ARGV  1 lease in microseconds, then two an item: n, and token.nonce| of the claim
-- Returns for each 0 (extended), 1 (the lease was lost) or 2 (there is no such entry).
proceed(KEYS[2])
local t = now()
local results, ends = {}, {}
for i = 2, #ARGV, 2 do
  local n = ARGV[i]
  local raw = redis.call('HGET', KEYS[1], n)
  local code = 0
  if not raw then
    code = 2
  elseif not held_by(raw, ARGV[i + 1]) then
    code = 1
  elseif tonumber(redis.call('ZSCORE', KEYS[2], n) or 0) <= t then
    code = 1
  else
    ends[#ends + 1] = t + tonumber(ARGV[1])
    ends[#ends + 1] = n
  end
  results[#results + 1] = code
end
if #ends > 0 then redis.call('ZADD', KEYS[2], unpack(ends)) end
return results
