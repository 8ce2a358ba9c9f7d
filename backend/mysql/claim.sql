-- Claims. Each picks rows under locks, passing over those that others have locked, and
-- puts them under the lease in the same transaction. Only rows in the order of an index
-- are picked, so that no more are locked than are returned. Indexes are named: the
-- server's statistics are those of a table that was empty a moment ago. ":filter" stands for kinds
-- and ids that were asked for or excluded.

-- name: claimed_columns
:now, m.due, m.seq, m.class, m.isolated, m.id, m.lane, m.attempts, m.failures, m.crashes, m.suspect, m.token, m.turn, m.kind, m.msg_key,
m.headers, m.published, m.expires, m.reply_to, m.generation, m.redrives, m.plan, COALESCE(m.origin, ''), m.edited_from, m.body, m.crc

-- name: pick
-- The oldest due of a class: a lane, named suspects, or leases that ran out.
--   queue, class, where it begins, filter, most
SELECT :claimed_columns
FROM redrive_message m FORCE INDEX (message_due)
WHERE m.queue = ? AND m.class = ? AND m.due >= ? AND m.due <= :now:filter
ORDER BY m.due, m.seq LIMIT ? FOR UPDATE SKIP LOCKED

-- name: pick_expired
-- What has expired and nobody holds.
--   queue, filter, most
SELECT :claimed_columns
FROM redrive_message m FORCE INDEX (message_expires)
WHERE m.queue = ? AND m.expires <= :now AND (m.class < 5 OR m.due <= :now):filter
ORDER BY m.expires LIMIT ? FOR UPDATE SKIP LOCKED

-- name: old_due
-- What was published too long ago, of the due ones: they were published before they were
-- due.
--   queue, class, greatest age, greatest age, filter, most
SELECT m.seq FROM redrive_message m FORCE INDEX (message_due)
WHERE m.queue = ? AND m.class = ? AND m.due <= :now - ? AND m.published <= :now - ?:filter
LIMIT ?

-- name: old_any
-- The same of all, from one id up to another: a bounded number.
--   queue, id to go on after, id to end with, greatest age, filter, most
SELECT m.seq FROM redrive_message m FORCE INDEX (message_id)
WHERE m.queue = ? AND m.id > ? AND m.id <= ? AND m.published <= :now - ? AND (m.class < 5 OR m.due <= :now):filter
LIMIT ?

-- name: old_place
-- Where a look of old_any ends; none if it comes to the end.
--   queue, id to go on after
SELECT m.id FROM redrive_message m FORCE INDEX (message_id) WHERE m.queue = ? AND m.id > ? ORDER BY m.id LIMIT 1 OFFSET 19999

-- name: pick_old
-- What is still too old of what was found so.
--   greatest age
SELECT :claimed_columns
FROM redrive_message m FORCE INDEX (PRIMARY)
WHERE m.seq IN (:seqs) AND m.published <= :now - ? AND (m.class < 5 OR m.due <= :now)
ORDER BY m.seq FOR UPDATE SKIP LOCKED

-- name: take
-- Puts the picked rows under the lease. Assignments are made from left to right.
--   end of the lease, nonce, isolated, instance
UPDATE redrive_message FORCE INDEX (PRIMARY) SET due = ?, token = token + 1, nonce = ?, attempts = attempts + 1,
  crashes = crashes + (class >= 5 AND isolated), suspect = suspect OR class >= 5, isolated = ?, instance = ?,
  class = IF(class IN (4, 6), 6, 5)
WHERE seq IN (:seqs)

-- name: pick_dead
-- Dead letters that a processor may have. They stay where they are.
--   queue, filter, most
SELECT :now, m.due, m.seq, 0, 0, m.id, m.lane, m.attempts, m.failures, m.crashes, 0, m.token, m.turn, m.kind, m.msg_key,
  m.headers, m.published, m.expires, m.reply_to, m.generation, m.redrives, m.plan, COALESCE(m.origin, ''), m.edited_from, m.body, m.crc, m.reason
FROM redrive_dead m FORCE INDEX (dead_due)
WHERE m.queue = ? AND m.due <= :now:filter
ORDER BY m.due LIMIT ? FOR UPDATE SKIP LOCKED

-- name: take_dead
--   end of the lease, nonce, instance, queue, ids
UPDATE redrive_dead FORCE INDEX (PRIMARY) SET due = ?, token = token + 1, nonce = ?, leased = 1, instance = ? WHERE queue = ? AND id IN (:ids)
