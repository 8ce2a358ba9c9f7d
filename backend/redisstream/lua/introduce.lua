-- introduce makes a store, or a partition of one, or learns what it is.
--
-- KEYS 1 meta
-- ARGV 1 a nonce, 2 version of the layout, 3 number of partitions: of a store that is new
-- Returns the nonce, the layout and the number of partitions.
local call = redis.call
if call('HSETNX', KEYS[1], 'nonce', ARGV[1]) == 1 then
  call('HSET', KEYS[1], 'schema', ARGV[2], 'partitions', ARGV[3])
end
local known = call('HMGET', KEYS[1], 'nonce', 'schema', 'partitions')
return { known[1], known[2] or '', known[3] or '1' }
