-- Runs each command that the other scripts run, so that a right that the user lacks is
-- found before a message depends on it. Everything it writes is under names that nobody
-- else has, and is gone when it ends, also where a command was refused.
--
-- KEYS  1 the list: only named, as the server then looks whether the user may touch it
--       2 a list  3 another list  4 a hash  5 a sorted set  6 a number: of this call only
-- Returns 1.
local function clear()
    redis.call('DEL', KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6])
end
clear() -- who may not do that leaves nothing to be cleared
local ok, refused = pcall(function()
    redis.call('TIME')
    redis.call('INCR', KEYS[6])
    redis.call('INCRBY', KEYS[6], 2)
    redis.call('LPUSH', KEYS[2], 'a')
    redis.call('RPUSH', KEYS[2], 'b')
    redis.call('LMOVE', KEYS[2], KEYS[3], 'RIGHT', 'RIGHT')
    redis.call('LINDEX', KEYS[3], 0)
    redis.call('LLEN', KEYS[3])
    redis.call('EXISTS', KEYS[3])
    redis.call('HSET', KEYS[4], 'n', 'v')
    redis.call('HGET', KEYS[4], 'n')
    redis.call('HEXISTS', KEYS[4], 'n')
    redis.call('HDEL', KEYS[4], 'n')
    redis.call('ZADD', KEYS[5], 1, 'n')
    redis.call('ZSCORE', KEYS[5], 'n')
    redis.call('ZCARD', KEYS[5])
    redis.call('ZRANGE', KEYS[5], 0, 0)
    redis.call('ZRANGEBYSCORE', KEYS[5], 0, 1)
    redis.call('ZREM', KEYS[5], 'n')
end)
clear()
if not ok then
    error(refused, 0)
end
return 1
