-- What the scripts share. It is put before each of them.
--
-- An entry is a message that was taken out of the waiting list, or that waits for its
-- time: its number n in "body" is the list's element as it was, in "state" the packed
-- array that these names index, in "history" its first and last failure.
local TOKEN, NONCE, ATTEMPTS, FAILURES, CRASHES, SUSPECT = 1, 2, 3, 4, 5, 6
local LANE, GENERATION, HELD, ISOLATED, CLAIMED, INSTANCE = 7, 8, 9, 10, 11, 12
local BORN, ID, REASON, DIED, REDRIVES, SINCE = 13, 14, 15, 16, 17, 18

-- An element of our own begins with these bytes; then come "c" (the publisher chose the
-- id) or "g" (it was made), the time of publication in 16 digits, the length of the id
-- in 3 digits, the id, and what only the client reads.
local MAGIC = '\0R1'

-- A member of "leases" that is no entry, at its end. It is too long for the packed form in
-- which Redis keeps small sorted sets and searches them from the front, which would double
-- what a claim costs.
local LAST = string.rep('~', 65)

-- now is the server's clock in microseconds.
local function now()
  local t = redis.call('TIME')
  return t[1] * 1000000 + t[2]
end

-- proceed lets a script run where the server's memory is full. From Redis 7 its flags do; one
-- before refuses what needs memory until the script has written something.
local function proceed(key) redis.call('ZREM', key, '') end

-- own_id is the id in an element of our own.
local function own_id(element)
  return string.sub(element, 24, 23 + (tonumber(string.sub(element, 21, 23)) or 0))
end

-- foreign_id names a foreign payload by when it was first taken and its number.
local function foreign_id(n, born) return 'f' .. string.format('%.0f', born) .. '-' .. n end

-- id_of names an entry.
local function id_of(n, e, element)
  if e[ID] ~= '' then return e[ID] end
  if string.sub(element, 1, 3) == MAGIC then return own_id(element) end
  return foreign_id(n, e[BORN])
end

-- new_entry is the state of a message that nobody has claimed yet. Only an id that its
-- publisher chose is kept in it.
local function new_entry(element, t)
  local id = ''
  if string.sub(element, 1, 4) == MAGIC .. 'c' then id = own_id(element) end
  return {0, '', 0, 0, 0, 0, 0, 0, 0, 0, 0, '', t, id, 0, 0, 0, 0}
end

-- foreign_entry is the state of a payload of others that begins as an element of ours does: its id
-- in the state says that it is none.
local function foreign_entry(n, t)
  local e = new_entry('', t)
  e[ID] = foreign_id(string.format('%.0f', n), t)
  return e
end

-- pack makes the text of a state. Its head is what a settlement must compare, so that
-- most need not unpack it: "H" while the entry is claimed, "c" if its publisher chose
-- the id, then token, "." and nonce of the claim, and "|".
local function pack(e)
  return (e[HELD] == 1 and 'H' or '-') .. (e[ID] ~= '' and 'c' or 'g') .. string.format('%.0f', e[TOKEN]) .. '.' .. e[NONCE] .. '|' ..
    cmsgpack.pack(e)
end

local function unpack_state(raw)
  return cmsgpack.unpack(string.sub(raw, string.find(raw, '|', 1, true) + 1))
end

-- held_by reports whether a state is that of a claim; claim is "token.nonce|".
local function held_by(raw, claim)
  return string.sub(raw, 1, 1) == 'H' and string.sub(raw, 3, 2 + #claim) == claim
end

-- read reads the state of an entry, nil if there is none.
local function read(key, n)
  local raw = redis.call('HGET', key, n)
  return raw and unpack_state(raw)
end

-- row is an entry as the client reads it, with its state and its failure history as they are.
local function row(n, raw, element, history_key, failed)
  return {n, element, raw, failed and redis.call('HGET', history_key, n) or ''}
end
