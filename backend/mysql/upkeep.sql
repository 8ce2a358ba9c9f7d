-- Upkeep.

-- name: configure
--   queue, order by key, dead letters let go, how long ids are remembered
INSERT INTO redrive_queue (name, order_by_key, dead_release, remember) VALUES (?, ?, ?, ?)
ON DUPLICATE KEY UPDATE order_by_key = VALUES(order_by_key), dead_release = VALUES(dead_release), remember = VALUES(remember)

-- name: fold_pick
-- Differences that are folded next.
--   most
SELECT id FROM redrive_delta ORDER BY id LIMIT ? FOR UPDATE SKIP LOCKED

-- name: fold
-- Adds differences to the ledgers of their queues. ":runs" are ranges of their ids. It reads
-- under locks, as fold_pick did: to a snapshot, the transaction that wrote a row may seem to
-- run still for a moment in which its rows can be locked, and the row would be dropped
-- without having been added.
INSERT INTO redrive_ledger (queue, :ledger)
SELECT d.queue, :sums FROM redrive_delta d FORCE INDEX (PRIMARY) WHERE :runs GROUP BY d.queue ORDER BY d.queue LOCK IN SHARE MODE
ON DUPLICATE KEY UPDATE :adds

-- name: fold_drop
-- A join, as in delete_messages.
DELETE d FROM JSON_TABLE('[:seqs]', '$[*]' COLUMNS (id BIGINT PATH '$')) i
STRAIGHT_JOIN redrive_delta d FORCE INDEX (PRIMARY) ON d.id = i.id

-- name: ahead
-- Whether messages of a class that nobody delayed lie ahead of the clock, of the first so
-- many that do.
--   queue, class, how far ahead, most looked at
SELECT 1 FROM (SELECT m.is_delayed FROM redrive_message m FORCE INDEX (message_due)
  WHERE m.queue = ? AND m.class = ? AND m.due > :now + ? ORDER BY m.due, m.seq LIMIT ?) x WHERE NOT x.is_delayed LIMIT 1

-- name: ahead_dead
-- The same of dead letters: one that nobody put off is due when it died.
--   queue, how far ahead, most looked at
SELECT 1 FROM (SELECT d.due = d.died AND NOT d.leased AS own FROM redrive_dead d FORCE INDEX (dead_due)
  WHERE d.queue = ? AND d.due > :now + ? ORDER BY d.due LIMIT ?) x WHERE x.own LIMIT 1

-- name: pull_pick
-- Those that are made due next. It waits for locked rows: a claim locks the first row behind
-- those that are due for a moment, and what is skipped would come behind the others.
--   queue, class, how far ahead, most
SELECT m.seq FROM redrive_message m FORCE INDEX (message_due)
WHERE m.queue = ? AND m.class = ? AND m.due > :now + ? AND NOT m.is_delayed ORDER BY m.due, m.seq LIMIT ? FOR UPDATE

-- name: pull
-- Makes them due, in their order. A join, as in delete_messages.
--   how many
UPDATE JSON_TABLE('[:seqs]', '$[*]' COLUMNS (place FOR ORDINALITY, seq BIGINT PATH '$')) i
STRAIGHT_JOIN redrive_message m FORCE INDEX (PRIMARY) ON m.seq = i.seq SET m.due = :now - ? + i.place

-- name: pull_dead_pick
-- Dead letters that are made due next.
--   queue, how far ahead, most
SELECT d.id FROM redrive_dead d FORCE INDEX (dead_due)
WHERE d.queue = ? AND d.due > :now + ? AND d.due = d.died AND NOT d.leased ORDER BY d.due, d.seq LIMIT ? FOR UPDATE

-- name: pull_dead
-- Makes them due, in their order.
--   how many, ids, queue, ids
UPDATE redrive_dead FORCE INDEX (PRIMARY) SET due = :now - ? + FIELD(id, :ids) WHERE queue = ? AND id IN (:ids)

-- name: trim_remembered
--   most
DELETE FROM redrive_remembered WHERE until <= :now ORDER BY until LIMIT ?

-- name: trim_records
--   most
DELETE FROM redrive_record WHERE expires <= :now ORDER BY expires LIMIT ?

-- name: trim_inbox
--   how long they are kept, most
DELETE FROM redrive_inbox WHERE at <= :now - ? ORDER BY at LIMIT ?

-- name: trim_dead
-- The oldest dead letters of a queue.
--   greatest age, queue, most
SELECT d.id, d.died < :now - ?, d.leased AND d.due > :now
FROM redrive_dead d FORCE INDEX (dead_died) WHERE d.queue = ? ORDER BY d.died, d.id LIMIT ?

-- name: once
--   id
INSERT IGNORE INTO redrive_inbox (id, at) VALUES (?, :now)
