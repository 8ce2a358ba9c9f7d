-- Whole messages, as the changes that are not on the hot path handle them. ":columns_*"
-- stands for the lists below; those of message and dead have the same order. ":ids",
-- ":seqs" and ":rows" stand for lists, ":now" for the server's clock. Indexes are named:
-- the server's statistics are those of a table that was empty a moment ago.

-- name: columns_message
m.queue, m.id, m.seq, m.due, NULL, m.published, m.expires, m.token, m.nonce, m.turn, m.attempts, m.failures, m.earlier, m.crashes,
m.generation, m.redrives, m.size, m.class, m.lane, 0, m.suspect, m.chosen, m.isolated, 0, m.kind, m.msg_key, m.instance, m.reply_to, m.plan,
COALESCE(m.origin, ''), m.edited_from, '', m.crc, m.is_delayed

-- name: columns_dead
d.queue, d.id, d.seq, d.due, d.died, d.published, d.expires, d.token, d.nonce, d.turn, d.attempts, d.failures, d.earlier, d.crashes,
d.generation, d.redrives, d.size, 0, d.lane, d.reason, 0, d.chosen, 0, d.leased, d.kind, d.msg_key, d.instance, d.reply_to, d.plan,
COALESCE(d.origin, ''), d.edited_from, d.signature, d.crc, 0

-- name: columns_message_parts
m.headers, m.first_failure, m.last_failure, m.original, m.body

-- name: columns_dead_parts
d.headers, d.first_failure, d.last_failure, d.original, d.body

-- name: columns_no_parts
NULL, NULL, NULL, NULL, NULL

-- name: lock_messages
--   queue, ids
SELECT :columns_message, :columns_message_parts
FROM redrive_message m FORCE INDEX (message_id) WHERE m.queue = ? AND m.id IN (:ids) ORDER BY m.id FOR UPDATE

-- name: lock_dead
--   queue, ids
SELECT :columns_dead, :columns_dead_parts
FROM redrive_dead d FORCE INDEX (PRIMARY) WHERE d.queue = ? AND d.id IN (:ids) ORDER BY d.id FOR UPDATE

-- name: get_messages
--   queue, ids
SELECT :columns_message, :columns_message_parts FROM redrive_message m FORCE INDEX (message_id) WHERE m.queue = ? AND m.id IN (:ids)

-- name: get_dead
--   queue, ids
SELECT :columns_dead, :columns_dead_parts FROM redrive_dead d FORCE INDEX (PRIMARY) WHERE d.queue = ? AND d.id IN (:ids)

-- name: delete_messages
-- A join, since no index can be named for a DELETE of one table: with few rows the server
-- would read them all, and wait for those that others have locked.
DELETE m FROM JSON_TABLE('[:seqs]', '$[*]' COLUMNS (seq BIGINT PATH '$')) i
STRAIGHT_JOIN redrive_message m FORCE INDEX (PRIMARY) ON m.seq = i.seq

-- name: delete_dead
--   queue, id
DELETE d FROM redrive_dead d FORCE INDEX (PRIMARY) WHERE d.queue = ? AND d.id = ?

-- name: insert_messages
-- A message without seq (NULL) gets the next one.
--   the columns of each
INSERT INTO redrive_message (seq, queue, id, due, published, expires, token, nonce, turn, attempts, failures, earlier, crashes,
  generation, redrives, size, class, lane, suspect, chosen, kind, msg_key, reply_to, plan, origin, edited_from,
  headers, first_failure, last_failure, original, body, crc, is_delayed)
VALUES :rows

-- name: insert_dead
--   the columns of each
INSERT INTO redrive_dead (queue, id, seq, died, due, published, expires, token, nonce, turn, attempts, failures, earlier, crashes,
  generation, redrives, size, reason, lane, chosen, edited, signature, kind, msg_key, reply_to, plan, origin, edited_from,
  headers, first_failure, last_failure, original, body, crc)
VALUES :rows

-- name: take_number
-- Takes the next seq, by a row that goes again in the same transaction.
--   id: random
INSERT INTO redrive_message (queue, id, due, published, size, body) VALUES ('', ?, 0, 0, 0, '')

-- name: taken_number
--   id
SELECT seq FROM redrive_message WHERE queue = '' AND id = ? FOR UPDATE

-- name: reserve
-- Remembers ids that callers chose, unless they are remembered already. The nonce tells
-- afterwards whose they are. Assignments are made from left to right.
--   queue, id, hash, nonce, keep of each
INSERT INTO redrive_remembered (queue, id, hash, nonce, keep, changed, until, outcome, reason) VALUES :rows
ON DUPLICATE KEY UPDATE
  hash = IF(until <= VALUES(changed), VALUES(hash), hash),
  nonce = IF(until <= VALUES(changed), VALUES(nonce), nonce),
  keep = IF(until <= VALUES(changed), VALUES(keep), keep),
  outcome = IF(until <= VALUES(changed), 0, outcome),
  reason = IF(until <= VALUES(changed), 0, reason),
  changed = IF(until <= VALUES(changed), VALUES(changed), changed),
  until = IF(until <= VALUES(changed), NULL, until)

-- name: reserved
--   queue, ids
SELECT queue, id, hash, nonce FROM redrive_remembered FORCE INDEX (PRIMARY) WHERE queue = ? AND id IN (:ids) FOR UPDATE

-- name: made_messages
-- Messages under ids that look like those that a store makes.
--   queue, ids
SELECT queue, id, kind, msg_key, body FROM redrive_message FORCE INDEX (message_id) WHERE queue = ? AND id IN (:ids) LOCK IN SHARE MODE

-- name: made_dead
--   queue, ids
SELECT queue, id, kind, msg_key, body FROM redrive_dead FORCE INDEX (PRIMARY) WHERE queue = ? AND id IN (:ids) LOCK IN SHARE MODE

-- name: forget_removed
-- Forgets an id whose message was archived or dropped, so that it can be put back.
--   queue, id
DELETE FROM redrive_remembered WHERE queue = ? AND id = ? AND until IS NOT NULL AND outcome IN (4, 6)

-- name: remember
-- Notes what became of messages whose ids are remembered.
--   outcome, reason, ended (the memory ends some day), queue, ids
UPDATE redrive_remembered FORCE INDEX (PRIMARY) SET outcome = ?, reason = ?, changed = :now, until = IF(?, :now + keep, NULL) WHERE queue = ? AND id IN (:ids)

-- name: settings
-- What the store knows about queues. A lock, so that a transaction of the caller's, which
-- may have an old snapshot, sees it as it is.
--   names
SELECT name, order_by_key, dead_release, remember FROM redrive_queue WHERE name IN (:ids) LOCK IN SHARE MODE

-- name: now
SELECT :now

-- name: range
-- The waiting messages of a key that nobody holds, from one of them up to another.
--   queue, key, seq of the first and of the last
SELECT m.id FROM redrive_message m FORCE INDEX (message_key)
WHERE m.queue = ? AND m.msg_key = ? AND (m.class < 5 OR m.due <= :now) AND m.seq BETWEEN ? AND ?
ORDER BY m.seq

-- name: range_end
--   queue, id, key, twice
SELECT seq FROM redrive_message WHERE queue = ? AND id = ? AND msg_key = ?
UNION ALL SELECT seq FROM redrive_dead WHERE queue = ? AND id = ? AND msg_key = ?
