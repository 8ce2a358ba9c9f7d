-- What the scripts share. It is put before each of them.
--
-- An entry is a message that was taken out of the waiting list, or that waits for its
-- time: its number n in "body" is the list's element as it was, in "state" the packed
-- array that these names index, in "story" its first and last failure.
local TOKEN, NONCE, ATTEMPTS, FAILURES, CRASHES, SUSPECT = 1, 2, 3, 4, 5, 6
local LANE, GENERATION, HELD, ALONE, CLAIMED, INSTANCE = 7, 8, 9, 10, 11, 12
local BORN, ID, REASON, DIED, REDRIVES, SINCE = 13, 14, 15, 16, 17, 18

-- An element of our own begins with these bytes; then come "c" (the publisher chose the
-- id) or "g" (it was made), the time of publication in 16 digits, the length of the id
-- in 3 digits, the id, and what only the client reads.
local MAGIC = '\0R1'

-- now is the server's clock in microseconds.
local function now()
  local t = redis.call('TIME')
  return t[1] * 1000000 + t[2]
end

-- own_id is the id in an element of our own.
local function own_id(element)
  return string.sub(element, 24, 23 + (tonumber(string.sub(element, 21, 23)) or 0))
end

-- id_of names an entry: a foreign payload by when it was first taken and its number.
local function id_of(n, e, element)
  if e[ID] ~= '' then return e[ID] end
  if string.sub(element, 1, 3) == MAGIC then return own_id(element) end
  return 'f' .. string.format('%.0f', e[BORN]) .. '-' .. n
end

-- new_entry is the state of a message that nobody has claimed yet.
local function new_entry(element, t)
  local id, born = '', t
  if string.sub(element, 1, 3) == MAGIC then
    born = tonumber(string.sub(element, 5, 20)) or t
    if string.sub(element, 4, 4) == 'c' then id = own_id(element) end
  end
  return {0, '', 0, 0, 0, 0, 0, 0, 0, 0, 0, '', born, id, 0, 0, 0, born}
end

-- read reads the state of an entry, nil if there is none.
local function read(key, n)
  local raw = redis.call('HGET', key, n)
  return raw and cmsgpack.unpack(raw)
end

-- row is an entry as the client reads it.
local function row(n, e, element, story_key)
  local first, last = '', ''
  if e[TOKEN] > 1 or e[REASON] > 0 then
    local raw = redis.call('HGET', story_key, n)
    if raw then
      local s = cmsgpack.unpack(raw)
      first, last = s[1], s[2]
    end
  end
  return {n, element, e[TOKEN], e[ATTEMPTS], e[FAILURES], e[CRASHES], e[SUSPECT], e[LANE], e[GENERATION],
    e[CLAIMED], e[INSTANCE], e[BORN], e[REASON], e[DIED], e[REDRIVES], e[SINCE], first, last}
end
