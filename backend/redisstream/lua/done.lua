-- done settles claims of plain entries of one queue's stream as done.
--
-- KEYS 1 stream, 2 leases by end, 3 holders, 4 counters
-- ARGV a place ("s" and the entry's id) and its holder for each
-- Returns 0 done, 1 another holds it, 2 it is not there; an item each. The check of all
-- comes before the change of any, and each change is one command for the whole batch.
local call = redis.call
local places = {}
for i = 1, #ARGV, 2 do places[#places + 1] = ARGV[i] end
local held = call('HMGET', KEYS[3], unpack(places))
local result, ok, entries, bytes, seen = {}, {}, {}, 0, {}
for i = 1, #places do
  local place = places[i]
  if held[i] and held[i] == ARGV[2 * i] and not seen[place] then
    seen[place] = true
    result[i] = 0
    ok[#ok + 1] = place
    entries[#entries + 1] = string.sub(place, 2)
    bytes = bytes + tonumber(string.match(held[i], '^%d+ %d+ %d+ %d+ (%d+)'))
  elseif held[i] or seen[place] then
    result[i] = 1
  else
    local entry = string.sub(place, 2)
    result[i] = #call('XRANGE', KEYS[1], entry, entry) > 0 and 1 or 2
  end
end
if #ok > 0 then
  call('HINCRBY', KEYS[4], 'done', #ok)
  call('HINCRBY', KEYS[4], 'xs', -#ok)
  call('HINCRBY', KEYS[4], 'sl', -#ok)
  call('HINCRBY', KEYS[4], 'bytes', -bytes)
  call('HDEL', KEYS[3], unpack(ok))
  call('ZREM', KEYS[2], unpack(ok))
  call('XACK', KEYS[1], 'redrive', unpack(entries))
  call('XDEL', KEYS[1], unpack(entries))
end
return result
