-- publish puts messages without anything special at the end of a queue's stream.
--
-- KEYS 1 the stream, 2 the queue's counters, 3 notify, 4 queues
-- ARGV 1 the queue's name, 2 bytes of all messages, 3... an envelope each
-- Returns the entries' ids, or only the first where the others follow it: all of one
-- millisecond, numbered one after the other.
local call = redis.call
local stream, n = KEYS[1], #ARGV - 2
call('HINCRBY', KEYS[2], 'published', n)
call('HINCRBY', KEYS[2], 'xs', n)
call('HINCRBY', KEYS[2], 'bytes', ARGV[2])
local ids, argv = {}, ARGV
for i = 1, n do
  ids[i] = call('XADD', stream, '*', 'redrive', argv[i + 2])
end
call('SADD', KEYS[4], ARGV[1])
call('XADD', KEYS[3], 'MAXLEN', '~', 2000, '*', 'q', ARGV[1])
local ms, from = string.match(ids[1], '^(%d+)-(%d+)$')
if ids[n] == ms .. '-' .. string.format('%.0f', from + n - 1) then return { ids[1] } end
return ids
