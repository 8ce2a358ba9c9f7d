-- extend makes leases run anew.
--
-- KEYS as in lib.lua, one queue
-- ARGV 1 lease, then a place and its holder each. Of a batch each gets a lease of its own.
-- Returns for each 0 done, 1 lost, 2 not found.
local q = queue(0)
local result = {}
for i = 2, #ARGV, 2 do
  local place = ARGV[i]
  local set = string.sub(place, 1, 1) == 'd' and q.dl or q.le
  local held = holderof(q, place)
  local till = call('ZSCORE', set, place)
  if held == ARGV[i + 1] and till and tonumber(till) > now then
    call('ZADD', set, now + ARGV[1], place)
    result[#result + 1] = 0
  else
    local id, there = string.sub(place, 2), nil
    if string.sub(place, 1, 1) == 's' then
      there = #call('XRANGE', q.s, id, id) > 0
    else
      there = call('HEXISTS', q.w, id) == 1 or call('HEXISTS', q.d, id) == 1
    end
    result[#result + 1] = (held or there) and 1 or 2
  end
end
flush(q)
return result
