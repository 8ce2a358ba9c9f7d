-- done settles claims of plain entries of one queue's stream as done.
--
-- KEYS 1 stream, 2 leases by end, 3 holders, 4 counters, 5 batches by end, 6 batches by entry
-- ARGV for each holder: the holder, its nonce, how many entries, the bytes of all and of
--      each as a text of numbers, the entries
-- Returns 0 done, 1 another holds it, 2 it is not there; an item each. The check of all of
-- a holder's comes before the change of any, and each change is one command for them all.
-- What a batch is, lib.lua tells. XACKDEL is true where the server has that command.
local call = redis.call
local stream, leases, holders = KEYS[1], KEYS[2], KEYS[3]
local result, done, bytes, batched = {}, 0, 0, 0

-- bytesof returns what an entry counts, as sizeof in lib.lua.
local function bytesof(fields)
  if #fields == 2 and fields[1] == 'redrive' and #fields[2] >= 10 then
    local v, a, b, c, d = string.byte(fields[2], 1, 5)
    if v == 1 then return a + b * 256 + c * 65536 + d * 16777216 end
  end
  local n = 0
  for i = 1, #fields do n = n + #fields[i] end
  return n
end

-- pending says that the group knows an entry as claimed, also when the stream has lost it.
local function pending(entry)
  local p = redis.pcall('XPENDING', stream, 'redrive', entry, entry, 1)
  return not p.err and #p > 0
end

-- leave takes n entries from a batch.
local function leave(m, nonce, n)
  batched = batched + n
  if call('HINCRBY', holders, 'b' .. nonce, -n) > 0 then return end
  call('ZREM', KEYS[5], m)
  call('ZREM', KEYS[6], m)
  call('HDEL', holders, 'b' .. nonce, 'm' .. nonce, 'o' .. nonce)
end

-- take ends entries that the group knows. It returns how many it knew and, if some are
-- taken off the stream by that, which: the answer for each, 1 of those.
local function take(entries)
  if XACKDEL then
    local each = redis.pcall('XACKDEL', stream, 'redrive', 'IDS', #entries, unpack(entries))
    if not each.err then
      local n = 0
      for i = 1, #each do
        if each[i] == 1 then n = n + 1 end
      end
      return n, each
    end
  end
  local n = call('XACK', stream, 'redrive', unpack(entries))
  if n == #entries then call('XDEL', stream, unpack(entries)) end
  return n, {}
end

-- single looks at each entry by itself. It returns those that the holder has and that are
-- still to be taken, which of them have a lease of their own, the bytes of all that are
-- settled, and how many were taken already.
local function single(holder, live, entries, taken, sizes)
  local places, own, ok, size, seen, gone = {}, {}, {}, 0, {}, 0
  for i = 1, #entries do places[i] = 's' .. entries[i] end
  local held = call('HMGET', holders, unpack(places))
  for i = 1, #entries do
    local entry = entries[i]
    local there = call('XRANGE', stream, entry, entry)[1]
    local counts = tonumber(sizes())
    if taken[i] == 1 then
      seen[entry] = true
      result[#result + 1] = 0
      gone = gone + 1
      size = size + counts
    elseif seen[entry] then
      result[#result + 1] = 1
    elseif held[i] == holder or not held[i] and live and (there or pending(entry)) then
      seen[entry] = true
      result[#result + 1] = 0
      ok[#ok + 1] = entry
      if held[i] then own[#own + 1] = places[i] end
      if there then size = size + bytesof(there[2]) end
    else
      result[#result + 1] = (held[i] or there) and 1 or 2
    end
  end
  return ok, own, size, gone
end

-- settle settles one holder's entries.
local function settle(holder, nonce, numbers, entries)
  local b = call('HMGET', holders, 'b' .. nonce, 'm' .. nonce, 'o' .. nonce)
  local m = b[2]
  local live = m and holder == '1 1 0 0 ' .. nonce .. ' ' .. string.sub(m, 63)
  local sizes = string.gmatch(numbers, '%d+')
  local size, known, taken = tonumber(sizes()), 0, {}
  if live and not b[3] then known, taken = take(entries) end
  if known == #entries then
    -- All were claimed and none was settled: the group knew them.
    for _ = 1, #entries do result[#result + 1] = 0 end
    leave(m, nonce, #entries)
    done, bytes = done + #entries, bytes + size
    return
  end
  local ok, own, some, gone = single(holder, live, entries, taken, sizes)
  if #ok + gone < #entries then size = some end
  done, bytes = done + #ok + gone, bytes + size
  if #ok > 0 then
    call('XACK', stream, 'redrive', unpack(ok))
    if #own > 0 then
      call('HDEL', holders, unpack(own))
      call('ZREM', leases, unpack(own))
    end
    call('XDEL', stream, unpack(ok))
  end
  if #ok + gone > #own then leave(m, nonce, #ok + gone - #own) end
end

local at = 1
while at < #ARGV do
  local n = tonumber(ARGV[at + 2])
  settle(ARGV[at], ARGV[at + 1], ARGV[at + 3], { unpack(ARGV, at + 4, at + 3 + n) })
  at = at + 4 + n
end
if done > 0 then
  call('HINCRBY', KEYS[4], 'done', done)
  call('HINCRBY', KEYS[4], 'xd', done)
  call('HINCRBY', KEYS[4], 'sl', -done)
  call('HINCRBY', KEYS[4], 'bytes', -bytes)
  if batched > 0 then call('HINCRBY', KEYS[4], 'bl', -batched) end
end
return result
