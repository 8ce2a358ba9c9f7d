-- Looking into the store. Nothing here changes anything. ":where" stands for what was
-- asked for, ":parts" for the large columns or none.

-- name: ledger
-- The ledgers of queues: what was folded, and the differences since.
--   names, names
SELECT d.queue, :sums FROM (
  SELECT queue, :ledger FROM redrive_ledger:where
  UNION ALL
  SELECT queue, :ledger FROM redrive_delta:where) d
GROUP BY d.queue ORDER BY d.queue

-- name: count_classes
-- What is blocked, suspect or leased, with leases that ran out apart.
--   queues
SELECT m.queue, m.class, m.due <= :now AS late, COUNT(*) FROM redrive_message m FORCE INDEX (message_due)
WHERE m.class >= 3:where GROUP BY m.queue, m.class, late

-- name: count_due
-- How much of a class is due, up to a bound.
--   queue, class, most
SELECT COUNT(*) FROM (SELECT 1 FROM redrive_message m FORCE INDEX (message_due) WHERE m.queue = ? AND m.class = ? AND m.due <= :now LIMIT ?) x

-- name: oldest_dead
-- When the oldest dead letter of queues died, by one step in the index for each.
--   queues
SELECT d.queue, MIN(d.died) FROM redrive_dead d FORCE INDEX (dead_died):where GROUP BY d.queue

-- name: peek
-- When each class of some queues begins, by one step in the index for each.
--   queues
SELECT m.queue, m.class, MIN(m.due) FROM redrive_message m FORCE INDEX (message_due) WHERE m.queue IN (:ids) GROUP BY m.queue, m.class

-- name: peek_from
-- When a class of a queue begins, from a point in time on before which it was found empty.
--   queue, class, from
SELECT m.queue, m.class, m.due FROM redrive_message m FORCE INDEX (message_due)
WHERE m.queue = ? AND m.class = ? AND m.due >= ? ORDER BY m.due LIMIT 1

-- name: first_due
-- Where a class of a queue begins, as a whole.
--   queue, class, filter
SELECT m.due FROM redrive_message m FORCE INDEX (message_due) WHERE m.queue = ? AND m.class = ?:filter ORDER BY m.due LIMIT 1

-- name: peek_all
SELECT m.queue, m.class, MIN(m.due) FROM redrive_message m FORCE INDEX (message_due) GROUP BY m.queue, m.class

-- name: peek_dead
-- When the last of some queues died.
--   queues
SELECT d.queue, 7, MAX(d.died) FROM redrive_dead d FORCE INDEX (dead_died) WHERE d.queue IN (:ids) GROUP BY d.queue

-- name: queue_names
-- The queues that hold something, or held something.
SELECT name FROM redrive_queue UNION SELECT queue FROM redrive_ledger UNION SELECT queue FROM redrive_delta ORDER BY 1

-- name: find_waiting
-- A page of what waits, by id.
--   ..., most
SELECT :columns_message, :parts FROM redrive_message m FORCE INDEX (message_id) WHERE :where ORDER BY m.id LIMIT ?

-- name: find_waiting_place
-- Where a look ends that sees as many as it may; nothing if it comes to the end.
--   ..., most less one
SELECT m.id, NULL FROM redrive_message m FORCE INDEX (message_id) WHERE :where ORDER BY m.id LIMIT 1 OFFSET ?

-- name: find_key
-- A page of the waiting messages of a key.
SELECT :columns_message, :parts FROM redrive_message m FORCE INDEX (message_key) WHERE :where ORDER BY m.id LIMIT ?

-- name: find_dead
-- A page of dead letters, by the time of their death.
SELECT :columns_dead, :parts FROM redrive_dead d FORCE INDEX (dead_died) WHERE :where ORDER BY d.died, d.id LIMIT ?

-- name: find_dead_place
SELECT d.id, d.died FROM redrive_dead d FORCE INDEX (dead_died) WHERE :where ORDER BY d.died, d.id LIMIT 1 OFFSET ?

-- name: find_cause
-- A page of dead letters of one reason and signature.
SELECT :columns_dead, :parts FROM redrive_dead d FORCE INDEX (dead_cause) WHERE :where ORDER BY d.died, d.id LIMIT ?

-- name: find_cause_place
SELECT d.id, d.died FROM redrive_dead d FORCE INDEX (dead_cause) WHERE :where ORDER BY d.died, d.id LIMIT 1 OFFSET ?

-- name: find_plan
-- A page of those that a plan redrove last.
SELECT :columns_dead, :parts FROM redrive_dead d FORCE INDEX (dead_plan) WHERE :where ORDER BY d.died, d.id LIMIT ?

-- name: find_plan_place
SELECT d.id, d.died FROM redrive_dead d FORCE INDEX (dead_plan) WHERE :where ORDER BY d.died, d.id LIMIT 1 OFFSET ?

-- name: find_edited
-- A page of those that were edited.
SELECT :columns_dead, :parts FROM redrive_dead d FORCE INDEX (dead_edited) WHERE :where ORDER BY d.died, d.id LIMIT ?

-- name: find_edited_place
SELECT d.id, d.died FROM redrive_dead d FORCE INDEX (dead_edited) WHERE :where ORDER BY d.died, d.id LIMIT 1 OFFSET ?

-- name: recall
--   queue, ids
SELECT queue, id, hash, outcome, reason, changed FROM redrive_remembered FORCE INDEX (PRIMARY)
WHERE queue = ? AND id IN (:ids) AND (until IS NULL OR until > :now)

-- name: causes_bounded
-- Dead letters by cause, largest first, where no counter tells: a bounded number is looked at.
--   of :index, how many are looked at, of :where, most
SELECT d.queue, d.reason, d.signature, COUNT(*) AS n, MIN(d.died), MAX(d.died)
FROM (SELECT d.queue, d.id FROM redrive_dead d WHERE :index LIMIT ?) b JOIN redrive_dead d ON d.queue = b.queue AND d.id = b.id
WHERE :where
GROUP BY d.queue, d.reason, d.signature ORDER BY n DESC, d.queue, d.reason, d.signature LIMIT ?

-- name: causes_looked
-- How many causes_bounded would look at, up to one more than it does.
--   of :index, how many
SELECT COUNT(*) FROM (SELECT 1 FROM redrive_dead d WHERE :index LIMIT ?) x

-- name: group_example
-- The newest of a group.
--   ...
SELECT d.id, COALESCE(d.last_failure, d.first_failure) FROM redrive_dead d FORCE INDEX (dead_cause)
WHERE :where ORDER BY d.died DESC, d.id DESC LIMIT 1

-- name: scan_waiting
--   queue
SELECT m.lane, COUNT(*), SUM(m.size),
  SUM(IF(m.headers IS NULL, m.size - LENGTH(m.body) - LENGTH(m.msg_key) - LENGTH(m.kind) - LENGTH(m.id), 0))
FROM redrive_message m WHERE m.queue = ? GROUP BY m.lane

-- name: scan_dead
--   queue
SELECT d.reason, COUNT(*) FROM redrive_dead d WHERE d.queue = ? GROUP BY d.reason

-- name: scan_sums
-- What messages and dead letters are compared with their checksums by.
--   queue, twice
SELECT id, kind, msg_key, headers, body, original, crc, 0 FROM redrive_message WHERE queue = ? AND crc IS NOT NULL
UNION ALL
SELECT id, kind, msg_key, headers, body, original, crc, reason FROM redrive_dead WHERE queue = ? AND crc IS NOT NULL

-- name: scan_twice
-- Messages that wait and are dead.
--   queue
SELECT COUNT(*) FROM redrive_message m JOIN redrive_dead d ON d.queue = m.queue AND d.id = m.id WHERE m.queue = ?

-- name: scan_blocked
-- Messages that are blocked though they are the head of their key.
--   queue
SELECT COUNT(*) FROM redrive_message m WHERE m.queue = ? AND m.class IN (4, 6) AND m.turn > 0
  AND NOT EXISTS (SELECT 1 FROM redrive_message x WHERE x.queue = m.queue AND x.msg_key = m.msg_key AND x.turn > 0 AND x.turn < m.turn)
  AND NOT EXISTS (SELECT 1 FROM redrive_dead x WHERE x.queue = m.queue AND x.msg_key = m.msg_key AND x.turn > 0 AND x.turn < m.turn)

-- name: scan_forgotten
-- Chosen ids that are not remembered.
--   queue
SELECT COUNT(*) FROM redrive_message m LEFT JOIN redrive_remembered r ON r.queue = m.queue AND r.id = m.id
WHERE m.queue = ? AND m.chosen AND r.id IS NULL

-- name: scan_members
-- Keys whose members are miscounted.
--   queue
SELECT COUNT(*) FROM redrive_ordered_key k WHERE k.queue = ? AND k.members <>
  (SELECT COUNT(*) FROM redrive_message m WHERE m.queue = k.queue AND m.msg_key = k.msg_key AND m.turn > 0)
  + (SELECT COUNT(*) FROM redrive_dead d WHERE d.queue = k.queue AND d.msg_key = k.msg_key AND d.turn > 0)

-- name: probe
-- What the server's settings are, of those that are there.
SHOW GLOBAL VARIABLES WHERE Variable_name IN ('version', 'innodb_flush_log_at_trx_commit', 'innodb_doublewrite', 'log_bin', 'sync_binlog',
  'max_allowed_packet', 'read_only', 'innodb_flush_method', 'innodb_snapshot_isolation', 'event_scheduler')

-- name: probe_tables
-- Our tables that are not kept by InnoDB.
SELECT TABLE_NAME FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE() AND TABLE_TYPE = 'BASE TABLE'
  AND LEFT(TABLE_NAME, CHAR_LENGTH(?)) = ? AND ENGINE <> 'InnoDB'
