-- Publishing.

-- name: publish
--   the columns of each
INSERT INTO redrive_message (queue, id, kind, msg_key, headers, body, due, published, expires, reply_to, generation, redrives, plan,
  origin, edited_from, size, crc, is_delayed, chosen, turn, class) VALUES :rows

-- name: publish_row
--   queue, id, kind, key, headers, body, delay, deliver at, expires, reply to, generation, redrives, plan, origin, edited from, size, checksum,
--   delay, deliver at, chosen, turn, class
(?,?,?,?,?,?,GREATEST(:now + ?, ?),:now,?,?,?,?,?,?,?,?,?,? > 0 OR ? > :now,?,?,?)

-- name: publish_plain
-- The same for messages without key, lineage, expiry, reply and chosen id.
--   the columns of each
INSERT INTO redrive_message (queue, id, kind, headers, body, due, published, size, crc, is_delayed) VALUES :rows

-- name: publish_plain_row
--   queue, id, kind, headers, body, delay, deliver at, size, checksum, delay, deliver at
(?,?,?,?,?,GREATEST(:now + ?, ?),:now,?,?,? > 0 OR ? > :now)

-- name: publish_now_row
-- One that is due at once.
--   queue, id, kind, headers, body, size, checksum
(?,?,?,?,?,:now,:now,?,?,0)

-- name: published
-- The ledger of what was published.
--   queue, how many, how many, bytes
INSERT INTO redrive_delta (queue, published, fresh, bytes) VALUES (?, ?, ?, ?)
