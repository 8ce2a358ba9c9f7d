-- Reads one page of what is in process, by the time of its claim, or of the dead
-- letters, by the time of their death; oldest first. It changes nothing.
--
-- KEYS  1 body  2 state  3 story  4 processing or dead  5 leases
-- ARGV  1 how many to pass over  2 how many to read, at most 100
-- Returns {row, end of the lease or -1, row, end, ...}; see row in entry.lua.
local out = {}
local from = tonumber(ARGV[1])
for _, n in ipairs(redis.call('ZRANGE', KEYS[4], from, from + tonumber(ARGV[2]) - 1)) do
  local raw = redis.call('HGET', KEYS[2], n)
  local element = redis.call('HGET', KEYS[1], n)
  if raw and element then
    out[#out + 1] = row(n, raw, element, KEYS[3], true)
    out[#out + 1] = tonumber(redis.call('ZSCORE', KEYS[5], n) or -1)
  end
end
return out
