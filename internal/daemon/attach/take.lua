-- Takes the oldest elements of a list into a hash, under ids of the caller, in one step.
--
-- KEYS[1] list: the oldest element is its last
-- KEYS[2] hash: id -> element
-- ARGV    ids, as many as are to be taken at most
--
-- Returns id, element, id, element, the oldest first. The hash is written before the list
-- is cut, as nothing is undone when a script fails: what then stands in both is taken
-- again, which no cut of a list can bring about, since it needs no memory.
local found = redis.call('LRANGE', KEYS[1], -#ARGV, -1)
if #found == 0 then
    return {}
end
local taken = {}
for i = #found, 1, -1 do
    local at = #found - i + 1
    taken[2 * at - 1] = ARGV[at]
    taken[2 * at] = found[i]
end
redis.call('HSET', KEYS[2], unpack(taken))
redis.call('LTRIM', KEYS[1], 0, -#found - 1)
return taken
