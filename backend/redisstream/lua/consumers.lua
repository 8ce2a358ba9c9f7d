-- consumers removes the names of consumers of the group that hold nothing and were not
-- seen for a while. What a consumer holds would go with its name, so both are one step.
--
-- KEYS 1 the stream
-- ARGV 1 idle for so many milliseconds
-- Returns how many were removed.
local list = redis.pcall('XINFO', 'CONSUMERS', KEYS[1], 'redrive')
if list.err then return 0 end
local gone = 0
for _, fields in ipairs(list) do
  local c = {}
  for i = 1, #fields, 2 do c[fields[i]] = fields[i + 1] end
  if c.pending == 0 and c.idle >= tonumber(ARGV[1]) and gone < 100 then
    redis.call('XGROUP', 'DELCONSUMER', KEYS[1], 'redrive', c.name)
    gone = gone + 1
  end
end
return gone
