-- Reads one page of the numbers of a sorted set, with which are in flight since when. It changes
-- nothing.
--
-- KEYS  1 leases or dead  2 state
-- ARGV  1 how many to pass over  2 how many to read, at most 500
-- Returns {number, time of the claim or -1 if it is not claimed, number, time, ...}.
local out = {}
local from = tonumber(ARGV[1])
for _, n in ipairs(redis.call('ZRANGE', KEYS[1], from, from + tonumber(ARGV[2]) - 1)) do
  local e = read(KEYS[2], n)
  out[#out + 1] = n
  out[#out + 1] = e and e[HELD] == 1 and e[CLAIMED] or -1
end
return out
