-- verify looks whether indexed messages stand where they should, and shows what is stored of
-- them, so that it can be compared with its checksum.
--
-- KEYS as in lib.lua, one queue
-- ARGV 1 "s" the stream, "w" or "d", 2 how many were looked at before, 3 how many to look at,
--      4 behind this entry of the stream
-- Returns {looked at, {id, problem, ...}, {id, blob and signature, or entry,
-- envelope and "", ...}, the last entry}.
local q = queue(0)
local problems, shown = {}, {}
local function show(id, raw, signature)
  local n = #shown
  shown[n + 1], shown[n + 2], shown[n + 3] = id, raw, signature
end
if ARGV[1] == 's' then
  local page = call('XRANGE', q.s, ARGV[4] == '' and '-' or '(' .. ARGV[4], '+', 'COUNT', ARGV[3])
  for _, e in ipairs(page) do
    local _, ours = sizeof(e[2])
    if ours then show(e[1], e[2][2], '') end
  end
  return { #page, problems, shown, page[1] and page[#page][1] or '' }
end
local set, hash = q.pb, q.w
if ARGV[1] == 'd' then set, hash = q.dd, q.d end
local page = call('ZRANGE', set, ARGV[2], ARGV[2] + ARGV[3] - 1)
local function problem(id, what) problems[#problems + 1], problems[#problems + 2] = id, what end
for _, m in ipairs(page) do
  local id = string.sub(m, 14)
  local blob = call('HGET', hash, id)
  if not blob then
    problem(id, 'is listed and not there')
  else
    local signature = ARGV[1] == 'd' and string.match(call('HGET', q.di, id) or '', '^%S+ (.*)$') or ''
    show(id, blob, signature)
    local h = parse(blob)
    if member(h.seq, id) ~= m then
      problem(id, 'is listed under another name')
    elseif ARGV[1] == 'd' then
      local places = (call('ZSCORE', q.dc, m) and 1 or 0) + (call('ZSCORE', q.dl, 'd' .. id) and 1 or 0)
      if places ~= 1 then problem(id, 'stands in ' .. places .. ' places of the dead') end
      if not call('ZSCORE', q.ca, causemember(causeof(h, signature), h, id)) then problem(id, 'is not counted under its cause') end
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
return { #page, problems, shown, '' }
