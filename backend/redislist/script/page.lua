-- Reads entries by their numbers. It changes nothing.
--
-- KEYS  1 body  2 state  3 history  4 leases
-- ARGV  the numbers, at most 100
-- Returns {row, end of the lease or -1, row, end, ...} of those that are there; see row in
-- entry.lua.
local out = {}
for _, n in ipairs(ARGV) do
  local raw = redis.call('HGET', KEYS[2], n)
  local element = redis.call('HGET', KEYS[1], n)
  if raw and element then
    out[#out + 1] = row(n, raw, element, KEYS[3], true)
    out[#out + 1] = tonumber(redis.call('ZSCORE', KEYS[4], n) or -1)
  end
end
return out
