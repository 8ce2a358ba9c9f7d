-- Counters of causes: the dead letters of a queue by reason and signature, and their deaths
-- by time. What is counted stands in cause and bucket, and the differences since in
-- cause_delta. ":which" stands for the causes that were asked for.

-- name: cause
-- Writes differences.
--   the columns of each
INSERT INTO redrive_cause_delta (queue, reason, signature, width, start, dead, deaths) VALUES :rows

-- name: bury_causes
-- The same of messages that are buried without a new failure, before they go.
--   reason
INSERT INTO redrive_cause_delta (queue, reason, signature, width, start, dead, deaths)
SELECT x.queue, ?, x.signature, 60, x.start, COUNT(*), COUNT(*)
FROM (SELECT queue, :signature AS signature, :now DIV 60000000 * 60000000 AS start FROM redrive_message FORCE INDEX (PRIMARY) WHERE seq IN (:seqs)) x
GROUP BY x.queue, x.signature, x.start

-- name: cause_pick
-- Differences that are folded next.
--   most
SELECT id, queue, reason, signature, width, start, dead, deaths FROM redrive_cause_delta ORDER BY id LIMIT ? FOR UPDATE SKIP LOCKED

-- name: cause_drop
-- A join, as in delete_messages.
DELETE d FROM JSON_TABLE('[:seqs]', '$[*]' COLUMNS (id BIGINT PATH '$')) i
STRAIGHT_JOIN redrive_cause_delta d FORCE INDEX (PRIMARY) ON d.id = i.id

-- name: series
-- Those of some causes whose deaths have buckets of their own.
--   queue, reason and signature of each
SELECT queue, reason, signature FROM redrive_cause FORCE INDEX (PRIMARY) WHERE (:rows) AND series

-- name: series_number
--   queues
SELECT queue, COUNT(*) FROM redrive_cause FORCE INDEX (cause_series) WHERE queue IN (:ids) AND series = 1 GROUP BY queue

-- name: add_causes
--   queue, reason, signature, dead, with series of each
INSERT INTO redrive_cause (queue, reason, signature, dead, series) VALUES :rows
ON DUPLICATE KEY UPDATE dead = dead + VALUES(dead), series = series OR VALUES(series)

-- name: add_buckets
--   queue, reason, signature, width, start, deaths of each
INSERT INTO redrive_bucket (queue, reason, signature, width, start, deaths) VALUES :rows
ON DUPLICATE KEY UPDATE deaths = deaths + VALUES(deaths)

-- name: pick_buckets
-- Buckets of a width that begin until then.
--   width, until, most
SELECT queue, reason, signature, width, start, 0, deaths FROM redrive_bucket FORCE INDEX (bucket_start)
WHERE width = ? AND start <= ? ORDER BY start LIMIT ? FOR UPDATE SKIP LOCKED

-- name: drop_bucket
--   queue, reason, signature, width, start
DELETE b FROM redrive_bucket b FORCE INDEX (PRIMARY) WHERE b.queue = ? AND b.reason = ? AND b.signature = ? AND b.width = ? AND b.start = ?

-- name: end_series
UPDATE redrive_cause c SET c.series = 0
WHERE c.series AND NOT EXISTS (SELECT 1 FROM redrive_bucket b WHERE b.queue = c.queue AND b.reason = c.reason AND b.signature = c.signature)

-- name: trim_causes
DELETE FROM redrive_cause WHERE dead = 0 AND NOT series

-- name: counted_causes
-- Causes by their counters.
--   ..., twice, most
SELECT x.queue, x.reason, x.signature, SUM(x.dead) AS n FROM (
  SELECT d.queue, d.reason, d.signature, d.dead FROM redrive_cause d WHERE :which UNION ALL
  SELECT d.queue, d.reason, d.signature, d.dead FROM redrive_cause_delta d WHERE :which) x
GROUP BY x.queue, x.reason, x.signature HAVING SUM(x.dead) > 0 ORDER BY :first x.queue, x.reason, x.signature LIMIT ?

-- name: cause_first
--   queue, reason, signature
SELECT d.died FROM redrive_dead d FORCE INDEX (dead_cause) WHERE d.queue = ? AND d.reason = ? AND d.signature = ? ORDER BY d.died LIMIT 1

-- name: cause_last
--   queue, reason, signature
SELECT d.died, d.id, COALESCE(d.last_failure, d.first_failure) FROM redrive_dead d FORCE INDEX (dead_cause)
WHERE d.queue = ? AND d.reason = ? AND d.signature = ? ORDER BY d.died DESC, d.id DESC LIMIT 1

-- name: count_dead
-- How many dead letters there are in each queue.
--   ..., twice
SELECT x.queue, SUM(x.dead) FROM (
  SELECT d.queue, d.dead FROM redrive_cause d WHERE :which UNION ALL SELECT d.queue, d.dead FROM redrive_cause_delta d WHERE :which) x
GROUP BY x.queue

-- name: count_late
-- How many died after a cutoff.
--   queue, reason and signature if they are asked for, cutoff
SELECT COUNT(*) FROM redrive_dead d FORCE INDEX (:index) WHERE :which AND d.died > ?

-- name: read_buckets
-- Deaths by cause and time.
--   ..., twice, since (microseconds)
SELECT x.queue, x.reason, x.signature, x.width, x.start, 0, SUM(x.deaths) FROM (
  SELECT d.queue, d.reason, d.signature, d.width, d.start, d.deaths FROM redrive_bucket d WHERE :which UNION ALL
  SELECT d.queue, d.reason, d.signature, d.width, d.start, d.deaths FROM redrive_cause_delta d WHERE :which AND d.deaths <> 0 AND d.width <> 0) x
WHERE x.start + x.width * 1000000 > ?
GROUP BY x.queue, x.reason, x.signature, x.width, x.start ORDER BY x.queue, x.reason, x.signature, x.start, x.width DESC

-- name: scan_causes
-- Causes whose counters are wrong.
--   queue, three times
SELECT x.reason, x.signature, SUM(x.counted), SUM(x.found) FROM (
  SELECT c.reason, c.signature, c.dead AS counted, 0 AS found FROM redrive_cause c WHERE c.queue = ? UNION ALL
  SELECT d.reason, d.signature, d.dead, 0 FROM redrive_cause_delta d WHERE d.queue = ? UNION ALL
  SELECT d.reason, d.signature, 0, COUNT(*) FROM redrive_dead d WHERE d.queue = ? GROUP BY d.reason, d.signature) x
GROUP BY x.reason, x.signature HAVING SUM(x.counted) <> SUM(x.found) ORDER BY x.reason, x.signature LIMIT 10
