-- causes lists causes of dead letters with their numbers, or shows the first and the last
-- dead letter of some.
--
-- KEYS as in lib.lua, one queue
-- ARGV 1 died at or after and 2 died before, as the set has it, "" for any; 3 "list", 4 from this
--      text on, 5 before this one ("" for all), 6 at most
--      or 3 "show", then causes
-- Returns where to go on or "", then cause and number each; or, for each cause, when the
-- first and the last died, the last one's id and its blob, "" if there is none.
local q = queue(0)
local from, to = ARGV[1], ARGV[2]

-- range returns the ends of a cause within the set.
local function range(cause)
  return '[' .. cause .. '\0' .. from, '(' .. cause .. (to == '' and '\1' or '\0' .. to)
end

local out = {}
if ARGV[3] == 'list' then
  local stop = ARGV[5] == '' and '+' or '(' .. ARGV[5]
  out[1] = ARGV[4]
  for _ = 1, ARGV[6] do
    local m = call('ZRANGEBYLEX', q.ca, '[' .. out[1], stop, 'LIMIT', 0, 1)[1]
    if not m then
      out[1] = ''
      return out
    end
    local cause = string.sub(m, 1, string.find(m, '\0', 1, true) - 1)
    local n = call('ZLEXCOUNT', q.ca, range(cause))
    if n > 0 then out[#out + 1], out[#out + 2] = cause, n end
    out[1] = cause .. '\1'
  end
  return out
end

local function diedof(m, cause) return string.format('%.0f', tonumber(string.sub(m, #cause + 2, #cause + 15), 16)) end
for i = 4, #ARGV do
  local cause = ARGV[i]
  local low, high = range(cause)
  local n, first = #out, call('ZRANGEBYLEX', q.ca, low, high, 'LIMIT', 0, 1)[1]
  if first then
    local last = call('ZREVRANGEBYLEX', q.ca, high, low, 'LIMIT', 0, 1)[1]
    local id = string.sub(last, #cause + 29)
    out[n + 1], out[n + 2], out[n + 3], out[n + 4] = diedof(first, cause), diedof(last, cause), id, call('HGET', q.d, id) or ''
  else
    out[n + 1], out[n + 2], out[n + 3], out[n + 4] = '', '', '', ''
  end
end
return out
