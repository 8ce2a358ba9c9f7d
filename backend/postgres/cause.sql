-- Counters of causes: the dead letters of a queue by reason and signature, and their deaths
-- by time. What is counted stands in cause and bucket, and the differences since in
-- cause_delta.

-- name: cause
-- Writes differences.
--   $1 queues    $2 reasons    $3 signatures    $4 widths of buckets, s    $5 their starts    $6 dead    $7 deaths
INSERT INTO redrive.cause_delta (queue, reason, signature, width, start, dead, deaths)
SELECT * FROM unnest($1::text[], $2::smallint[], $3::text[], $4::integer[], $5::timestamptz[], $6::bigint[], $7::bigint[])

-- name: drain_causes
-- Takes differences away, and returns what they add up to.
--   $1 most rows
WITH taken AS MATERIALIZED (
  DELETE FROM redrive.cause_delta d WHERE d.ctid = ANY (ARRAY(SELECT x.ctid FROM redrive.cause_delta x LIMIT $1 FOR UPDATE SKIP LOCKED))
  RETURNING d.*
)
SELECT queue, reason, signature, width, start, sum(dead)::bigint, sum(deaths)::bigint, count(*) FROM taken GROUP BY queue, reason, signature, width, start

-- name: series
-- Those of some causes whose deaths have buckets of their own.
--   $1 queues    $2 reasons    $3 signatures
SELECT c.queue, c.reason, c.signature
FROM (SELECT * FROM unnest($1::text[], $2::smallint[], $3::text[]) AS i (queue, reason, signature) LIMIT (SELECT 1000000)) i
JOIN redrive.cause c ON c.queue = i.queue AND c.reason = i.reason AND c.signature = i.signature AND c.series

-- name: series_number
--   $1 queues
SELECT c.queue, count(*) FROM redrive.cause c WHERE c.queue = ANY ($1::text[]) AND c.series GROUP BY c.queue

-- name: add_causes
--   $1 queues    $2 reasons    $3 signatures    $4 dead    $5 with series
INSERT INTO redrive.cause AS c (queue, reason, signature, dead, series)
SELECT * FROM unnest($1::text[], $2::smallint[], $3::text[], $4::bigint[], $5::boolean[])
ON CONFLICT (queue, reason, signature) DO UPDATE SET dead = c.dead + excluded.dead, series = c.series OR excluded.series

-- name: add_buckets
--   $1 queues    $2 reasons    $3 signatures    $4 widths, s    $5 starts    $6 deaths
INSERT INTO redrive.bucket AS b (queue, reason, signature, width, start, deaths)
SELECT * FROM unnest($1::text[], $2::smallint[], $3::text[], $4::integer[], $5::timestamptz[], $6::bigint[])
ON CONFLICT (queue, reason, signature, width, start) DO UPDATE SET deaths = b.deaths + excluded.deaths

-- name: drain_buckets
-- Takes buckets of a width away that begin until then.
--   $1 width, s    $2 until    $3 most
DELETE FROM redrive.bucket b WHERE (b.queue, b.reason, b.signature, b.width, b.start) IN (
  SELECT x.queue, x.reason, x.signature, x.width, x.start FROM redrive.bucket x WHERE x.width = $1 AND x.start <= $2
  ORDER BY x.queue, x.reason, x.signature LIMIT $3 FOR UPDATE SKIP LOCKED)
RETURNING b.queue, b.reason, b.signature, b.width, b.start, 0::bigint, b.deaths, 1

-- name: end_series
UPDATE redrive.cause c SET series = false
WHERE c.series AND NOT EXISTS (SELECT FROM redrive.bucket b WHERE b.queue = c.queue AND b.reason = c.reason AND b.signature = c.signature)

-- name: trim_causes
DELETE FROM redrive.cause c WHERE c.dead = 0 AND NOT c.series

-- name: counted_causes
-- Causes by their counters, each with its first and its newest dead letter: largest first, or, as
-- next_causes, those after one by their names.
--   $1 queue (null: all)    $2 reason    $3 signature    $4 most causes    ($5 queue, $6 reason, $7 signature)
WITH counted AS MATERIALIZED (
  SELECT x.queue, x.reason, x.signature, sum(x.dead)::bigint AS n FROM (:counters) x WHERE :after
  GROUP BY x.queue, x.reason, x.signature HAVING sum(x.dead) > 0
),
largest AS MATERIALIZED (
  SELECT c.*, count(*) OVER () AS found FROM counted c ORDER BY :first c.queue, c.reason, c.signature LIMIT $4
)
SELECT l.queue, l.reason, l.signature, l.n, f.died, e.died, coalesce(e.id, ''), e.failure, 0, l.found
FROM largest l LEFT JOIN LATERAL (
  SELECT d.died FROM redrive.dead d
  WHERE d.queue = l.queue AND d.reason = l.reason AND d.signature = l.signature ORDER BY d.died, d.id LIMIT 1) f ON true
LEFT JOIN LATERAL (
  SELECT d.died, d.id, coalesce(d.last_failure, d.first_failure) AS failure FROM redrive.dead d
  WHERE d.queue = l.queue AND d.reason = l.reason AND d.signature = l.signature ORDER BY d.died DESC, d.id DESC LIMIT 1) e ON true
ORDER BY :largest l.queue, l.reason, l.signature

-- name: count_dead
-- How many dead letters there are, and how many of them died after a cutoff.
--   $1 queue (null: all)    $2 reason    $3 signature    $4 cutoff (null: none)
WITH counted AS MATERIALIZED (
  SELECT x.queue, sum(x.dead)::bigint AS n FROM (:counters) x GROUP BY x.queue
)
SELECT coalesce(sum(c.n), 0)::bigint, coalesce(sum(l.n), 0)::bigint
FROM counted c CROSS JOIN LATERAL (
  SELECT count(*) AS n FROM redrive.dead d WHERE d.queue = c.queue AND d.died > coalesce($4::timestamptz, 'infinity')
    AND ($2::smallint IS NULL OR d.reason = $2) AND ($3::text IS NULL OR d.signature = $3)) l

-- name: count_cause
-- The same of one reason and signature, whose index tells when they died.
WITH counted AS MATERIALIZED (
  SELECT x.queue, sum(x.dead)::bigint AS n FROM (:counters) x GROUP BY x.queue
)
SELECT coalesce(sum(c.n), 0)::bigint, coalesce(sum(l.n), 0)::bigint
FROM counted c CROSS JOIN LATERAL (
  SELECT count(*) AS n FROM redrive.dead d
  WHERE d.queue = c.queue AND d.reason = $2 AND d.signature = $3 AND d.died > coalesce($4::timestamptz, 'infinity')) l

-- name: read_buckets
-- Deaths by cause and time.
--   $1 queue (null: all)    $2 reason    $3 signature    $4 since (null: all)
SELECT x.queue, x.reason, x.signature, x.width, x.start, 0::bigint, sum(x.deaths)::bigint, 1
FROM (SELECT queue, reason, signature, width, start, deaths FROM redrive.bucket UNION ALL
  SELECT queue, reason, signature, width, start, deaths FROM redrive.cause_delta WHERE deaths <> 0 AND width <> 0) x
WHERE ($1::text IS NULL OR x.queue = $1) AND ($2::smallint IS NULL OR x.reason = $2) AND ($3::text IS NULL OR x.signature = $3)
  AND ($4::timestamptz IS NULL OR x.start + x.width * interval '1 second' > $4)
GROUP BY x.queue, x.reason, x.signature, x.width, x.start
ORDER BY x.queue, x.reason, x.signature, x.start, x.width DESC

-- name: scan_causes
-- Causes whose counters are wrong.
--   $1 queue
SELECT x.reason, x.signature, sum(x.counted)::bigint, sum(x.found)::bigint
FROM (SELECT c.reason, c.signature, c.dead AS counted, 0 AS found FROM redrive.cause c WHERE c.queue = $1 UNION ALL
  SELECT d.reason, d.signature, d.dead, 0 FROM redrive.cause_delta d WHERE d.queue = $1 UNION ALL
  SELECT d.reason, d.signature, 0, count(*) FROM redrive.dead d WHERE d.queue = $1 GROUP BY d.reason, d.signature) x
GROUP BY x.reason, x.signature HAVING sum(x.counted) <> sum(x.found) ORDER BY x.reason, x.signature LIMIT 10
