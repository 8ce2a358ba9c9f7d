-- acknowledge counts as dropped what other clients took away from a queue's stream, once.
--
-- KEYS 1 counters
-- ARGV 1 what was acknowledged before, 2 how many more there are, 3 by how much the server counts
--      fewer entries than it should, as when the stream was deleted
-- Returns 1, or 0 if another was before.
if (redis.call('HGET', KEYS[1], 'lost') or '0') ~= ARGV[1] then return 0 end
redis.call('HINCRBY', KEYS[1], 'lost', ARGV[2])
redis.call('HINCRBY', KEYS[1], 'xo', ARGV[3])
return 1
