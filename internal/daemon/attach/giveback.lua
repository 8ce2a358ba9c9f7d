-- Gives elements back to the old end of their list.
--
-- KEYS[1] list
-- KEYS[2] hash: id -> element
-- ARGV    ids, the newest first
--
-- What is not in the hash any more was settled by somebody else.
for i = 1, #ARGV do
    local element = redis.call('HGET', KEYS[2], ARGV[i])
    if element then
        redis.call('RPUSH', KEYS[1], element)
        redis.call('HDEL', KEYS[2], ARGV[i])
    end
end
return redis.status_reply('OK')
