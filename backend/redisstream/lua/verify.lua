-- verify looks whether indexed messages stand where they should.
--
-- KEYS as in lib.lua, one queue
-- ARGV 1 "w" or "d", 2 how many were looked at before, 3 how many to look at
-- Returns {looked at, then problems: id, what}.
local q = queue(0)
local set, hash = q.pb, q.w
if ARGV[1] == 'd' then set, hash = q.dd, q.d end
local page = call('ZRANGE', set, ARGV[2], ARGV[2] + ARGV[3] - 1)
local out = { #page }
local function problem(id, what) out[#out + 1], out[#out + 2] = id, what end
for _, m in ipairs(page) do
  local id = string.sub(m, 14)
  local blob = call('HGET', hash, id)
  if not blob then
    problem(id, 'is listed and not there')
  else
    local h = parse(blob)
    if member(h.seq, id) ~= m then
      problem(id, 'is listed under another name')
    elseif ARGV[1] == 'd' then
      local places = (call('ZSCORE', q.dc, m) and 1 or 0) + (call('ZSCORE', q.dl, 'd' .. id) and 1 or 0)
      if places ~= 1 then problem(id, 'stands in ' .. places .. ' places of the dead') end
    else
      local blocked = call('SISMEMBER', q.b, id) == 1
      local places = (call('ZSCORE', q[h.lane], m) and 1 or 0) + (call('ZSCORE', q.x, m) and 1 or 0) +
        (call('ZSCORE', q.le, 'i' .. id) and 1 or 0) + (blocked and 1 or 0)
      if places ~= 1 then problem(id, places == 0 and 'can never be claimed' or 'stands in ' .. places .. ' places') end
      if has(h.flags, ORDERED) then
        local leads = leader(q, h.key) == chainmember(h, id)
        if blocked and leads then problem(id, 'is blocked by nothing') end
        local expired = h.expires > 0
        if not blocked and not leads and not expired and not call('ZSCORE', q.le, 'i' .. id) then
          problem(id, 'may overtake another message of its key')
        end
      end
    end
  end
end
return out
