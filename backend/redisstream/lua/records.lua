-- records lists the records of a space, or gets one.
--
-- KEYS as in lib.lua, no queue
-- ARGV 1 the space and a NUL, 2 behind this key, 3 at most; or 2 "=" and 3 the key
-- Returns {name, packed record, ...}: version and end as doubles, then the value.
local out = {}
local function show(name)
  local v = call('HGET', KEYS[4], name)
  if not v then return end
  local _, till = struct.unpack('<dd', v)
  if till > 0 and till <= now then return end
  out[#out + 1], out[#out + 2] = name, v
end
if #ARGV == 4 then
  show(ARGV[1] .. ARGV[3])
  return out
end
local from, limit = '(' .. ARGV[1] .. ARGV[2], tonumber(ARGV[3])
if ARGV[2] == '' then from = '[' .. ARGV[1] end
while #out < 2 * limit do
  local page = call('ZRANGEBYLEX', KEYS[5], from, '(' .. string.sub(ARGV[1], 1, -2) .. '\1', 'LIMIT', 0, 200)
  for _, name in ipairs(page) do
    if #out < 2 * limit then show(name) end
  end
  if #page < 200 then break end
  from = '(' .. page[#page]
end
return out
