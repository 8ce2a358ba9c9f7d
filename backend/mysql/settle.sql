-- Settlements. Rows are read under locks (held), judged, and changed in the same
-- transaction.

-- name: held
SELECT m.seq, m.queue, m.id, m.token, m.nonce, m.class, m.due, m.lane, m.size, m.chosen, m.turn, m.msg_key, :now
FROM redrive_message m FORCE INDEX (PRIMARY) WHERE m.seq IN (:seqs) ORDER BY m.seq FOR UPDATE

-- name: held_dead
-- Dead letters whose leases may be extended.
--   queue, ids
SELECT d.queue, d.id, d.token, d.nonce, d.leased, d.due, :now
FROM redrive_dead d FORCE INDEX (PRIMARY) WHERE d.queue = ? AND d.id IN (:ids) ORDER BY d.id FOR UPDATE

-- name: back
-- Gives messages back or has them retried, without a failure.
--   retried, delay, delayed, retried, released, released
UPDATE redrive_message FORCE INDEX (PRIMARY) SET
  class = IF(class = 6, 4, IF(?, 1, IF(suspect, 3, lane))), due = :now + ?, is_delayed = ?, lane = IF(?, 1, lane), attempts = attempts - ?,
  suspect = suspect AND ?, isolated = 0, instance = ''
WHERE seq IN (:seqs)

-- name: failed
-- The same with a failure: the first is kept, and the last.
--   retried, delay, delayed, retried, released, released, counted, failure, failure
UPDATE redrive_message FORCE INDEX (PRIMARY) SET
  class = IF(class = 6, 4, IF(?, 1, IF(suspect, 3, lane))), due = :now + ?, is_delayed = ?, lane = IF(?, 1, lane), attempts = attempts - ?,
  suspect = suspect AND ?, isolated = 0, instance = '', failures = failures + ?,
  last_failure = IF(first_failure IS NULL, last_failure, ?), first_failure = COALESCE(first_failure, ?)
WHERE seq IN (:seqs)

-- name: repeat
-- The next generation of a recurring message.
--   delay, delayed
UPDATE redrive_message FORCE INDEX (PRIMARY) SET
  class = IF(turn > 0, 4, 0), lane = 0, due = :now + ?, is_delayed = ?, published = :now, generation = generation + 1, attempts = 0, failures = 0,
  earlier = 0, crashes = 0, suspect = 0, first_failure = NULL, last_failure = NULL, original = NULL, isolated = 0, instance = ''
WHERE seq IN (:seqs)

-- name: bury
-- Copies messages to the dead letters, without a new failure.
--   lets go, reason
INSERT INTO redrive_dead (queue, id, seq, died, due, published, expires, token, nonce, turn, attempts, failures, earlier, crashes,
  generation, redrives, size, crc, reason, lane, chosen, edited, signature, kind, msg_key, reply_to, plan, origin, edited_from,
  headers, first_failure, last_failure, original, body)
SELECT queue, id, seq, :now, :now, published, expires, token, nonce, IF(?, 0, turn), attempts, failures, earlier, crashes,
  generation, redrives, size, crc, ?, lane, chosen, original IS NOT NULL,
  :signature,
  kind, msg_key, reply_to, plan, origin, edited_from, headers, first_failure, last_failure, original, body
FROM redrive_message FORCE INDEX (PRIMARY) WHERE seq IN (:seqs)

-- name: bury_failed
-- The same with a failure.
--   lets go, reason, signature, failure, failure
INSERT INTO redrive_dead (queue, id, seq, died, due, published, expires, token, nonce, turn, attempts, failures, earlier, crashes,
  generation, redrives, size, crc, reason, lane, chosen, edited, signature, kind, msg_key, reply_to, plan, origin, edited_from,
  headers, first_failure, last_failure, original, body)
SELECT queue, id, seq, :now, :now, published, expires, token, nonce, IF(?, 0, turn), attempts, failures + 1, earlier, crashes,
  generation, redrives, size, crc, ?, lane, chosen, original IS NOT NULL, ?, kind, msg_key, reply_to, plan, origin, edited_from, headers,
  COALESCE(first_failure, ?), IF(first_failure IS NULL, last_failure, ?), original, body
FROM redrive_message FORCE INDEX (PRIMARY) WHERE seq IN (:seqs)

-- name: extend
--   end of the lease
UPDATE redrive_message FORCE INDEX (PRIMARY) SET due = ? WHERE seq IN (:seqs)

-- name: extend_dead
--   end of the lease, queue, ids
UPDATE redrive_dead FORCE INDEX (PRIMARY) SET due = ? WHERE queue = ? AND id IN (:ids)

-- name: there
-- Which of the messages exist at all, waiting or dead.
--   queue, ids, twice
SELECT queue, id FROM redrive_message FORCE INDEX (message_id) WHERE queue = ? AND id IN (:ids)
UNION ALL SELECT queue, id FROM redrive_dead FORCE INDEX (PRIMARY) WHERE queue = ? AND id IN (:ids)
