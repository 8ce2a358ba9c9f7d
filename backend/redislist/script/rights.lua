-- Runs each command that the other scripts run, so that a right that the user lacks is
-- found before a message depends on it. It leaves nothing behind.
--
-- KEYS  1 a list  2 another list  3 a hash  4 a sorted set  5 a number
-- Returns 1.
redis.call('DEL', KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5])
redis.call('TIME')
redis.call('INCR', KEYS[5])
redis.call('INCRBY', KEYS[5], 2)
redis.call('LPUSH', KEYS[1], 'a')
redis.call('RPUSH', KEYS[1], 'b')
redis.call('LMOVE', KEYS[1], KEYS[2], 'RIGHT', 'RIGHT')
redis.call('LINDEX', KEYS[2], 0)
redis.call('LLEN', KEYS[2])
redis.call('EXISTS', KEYS[2])
redis.call('HSET', KEYS[3], 'n', 'v')
redis.call('HGET', KEYS[3], 'n')
redis.call('HEXISTS', KEYS[3], 'n')
redis.call('HDEL', KEYS[3], 'n')
redis.call('ZADD', KEYS[4], 1, 'n')
redis.call('ZSCORE', KEYS[4], 'n')
redis.call('ZCARD', KEYS[4])
redis.call('ZRANGE', KEYS[4], 0, 0)
redis.call('ZRANGEBYSCORE', KEYS[4], 0, 1)
redis.call('ZREM', KEYS[4], 'n')
redis.call('DEL', KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5])
return 1
