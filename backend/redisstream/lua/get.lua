-- get looks messages up.
--
-- KEYS as in lib.lua, one queue
-- ARGV an id and the entry it may be named by ("" if none) each
-- Returns now, then for each false or {place, raw, holder, end of the lease, blocked,
-- memory}.
local q = queue(0)
local out = { string.format('%.0f', now) }
for i = 1, #ARGV, 2 do
  local id, entry = ARGV[i], ARGV[i + 1]
  local place, raw = 'i' .. id, call('HGET', q.w, id)
  if not raw then
    place, raw = 'd' .. id, call('HGET', q.d, id)
  end
  if not raw and entry ~= '' then
    local e = call('XRANGE', q.s, entry, entry)[1]
    place, raw = 's' .. entry, e and e[2]
    if not e and (call('HEXISTS', q.lh, place) == 1 or pending(q, entry)) then raw = {} end -- trimmed under its holder
  end
  if raw then
    local who, till = held(q, place)
    out[#out + 1] = { place, raw, who or '', till or '', call('SISMEMBER', q.b, id), call('HGET', q.r, id) or '' }
  else
    out[#out + 1] = { '', '', '', '', 0, call('HGET', q.r, id) or '' }
  end
end
return out
