-- Upkeep.

-- name: configure
--   $1 queue    $2 order by key    $3 dead letters let go    $4 how long ids are remembered, us
INSERT INTO redrive.queue AS q (name, order_by_key, dead_release, remember) VALUES ($1, $2, $3, $4::bigint * interval '1 microsecond')
ON CONFLICT (name) DO UPDATE SET order_by_key = excluded.order_by_key, dead_release = excluded.dead_release, remember = excluded.remember

-- name: fold
-- Adds differences to the ledgers of their queues, at most so many rows at a time.
--   $1 most rows
WITH taken AS MATERIALIZED (
  DELETE FROM redrive.delta d WHERE d.ctid = ANY (ARRAY(SELECT x.ctid FROM redrive.delta x LIMIT $1 FOR UPDATE SKIP LOCKED))
  RETURNING d.*
),
summed AS (
  SELECT d.queue AS name, :sums FROM taken d GROUP BY d.queue
),
folded AS (
  INSERT INTO redrive.queue AS q (name, :ledger)
  SELECT d.name, :values FROM summed d ORDER BY d.name
  ON CONFLICT (name) DO UPDATE SET :adds
)
SELECT count(*) FROM taken

-- name: ahead
-- Classes of queues in which messages that nobody delayed lie ahead of the clock, of the
-- first so many that do. A dead letter that nobody put off is due when it died.
--   $1 how far ahead, us    $2 most looked at    $3 class of dead letters
WITH t AS MATERIALIZED (
  SELECT clock_timestamp() + $1::bigint * interval '1 microsecond' AS ahead
)
SELECT q.name, c.class
FROM (SELECT name FROM redrive.queue UNION SELECT queue FROM redrive.delta) q CROSS JOIN generate_series(0, 3) AS c (class)
WHERE EXISTS (SELECT FROM (
  SELECT m.delayed FROM redrive.message m WHERE m.queue = q.name AND m.class = c.class::smallint AND m.due > (SELECT ahead FROM t)
  ORDER BY m.due, m.seq LIMIT $2) x WHERE NOT x.delayed)
UNION ALL
SELECT q.name, $3::integer
FROM (SELECT name FROM redrive.queue UNION SELECT queue FROM redrive.delta) q
WHERE EXISTS (SELECT FROM (
  SELECT d.due = d.died AND NOT d.leased AS own FROM redrive.dead d WHERE d.queue = q.name AND d.due > (SELECT ahead FROM t)
  ORDER BY d.due LIMIT $2) x WHERE x.own)

-- name: pull
-- Makes them due, in their order.
--   $1 queue    $2 class    $3 how far ahead, us    $4 most
WITH t AS MATERIALIZED (
  SELECT clock_timestamp() AS now
),
ahead AS MATERIALIZED (
  SELECT m.queue, m.id, m.due, m.seq FROM redrive.message m
  WHERE m.queue = $1 AND m.class = $2 AND m.due > (SELECT now FROM t) + $3::bigint * interval '1 microsecond' AND NOT m.delayed
  ORDER BY m.due, m.seq LIMIT $4 FOR UPDATE SKIP LOCKED
),
placed AS MATERIALIZED (
  SELECT a.queue, a.id, row_number() OVER (ORDER BY a.due, a.seq) - $4 AS place FROM ahead a
)
UPDATE redrive.message m SET due = t.now + p.place * interval '1 microsecond'
FROM placed p, t WHERE m.queue = p.queue AND m.id = p.id
RETURNING 1

-- name: pull_dead
-- The same for dead letters.
--   $1 queue    $2 how far ahead, us    $3 most
WITH t AS MATERIALIZED (
  SELECT clock_timestamp() AS now
),
ahead AS MATERIALIZED (
  SELECT d.queue, d.id, d.due, d.seq FROM redrive.dead d
  WHERE d.queue = $1 AND d.due > (SELECT now FROM t) + $2::bigint * interval '1 microsecond' AND d.due = d.died AND NOT d.leased
  ORDER BY d.due, d.seq LIMIT $3 FOR UPDATE SKIP LOCKED
),
placed AS MATERIALIZED (
  SELECT a.queue, a.id, row_number() OVER (ORDER BY a.due, a.seq) - $3 AS place FROM ahead a
)
UPDATE redrive.dead d SET due = t.now + p.place * interval '1 microsecond'
FROM placed p, t WHERE d.queue = p.queue AND d.id = p.id
RETURNING 1

-- name: trim_remembered
--   $1 most
DELETE FROM redrive.remembered r WHERE (r.queue, r.id) IN (
  SELECT x.queue, x.id FROM redrive.remembered x WHERE x.until <= clock_timestamp() ORDER BY x.until LIMIT $1 FOR UPDATE SKIP LOCKED)

-- name: trim_records
--   $1 most
DELETE FROM redrive.record r WHERE (r.space, r.key) IN (
  SELECT x.space, x.key FROM redrive.record x WHERE x.expires <= clock_timestamp() ORDER BY x.expires LIMIT $1 FOR UPDATE SKIP LOCKED)

-- name: trim_inbox
--   $1 most    $2 how long they are kept, us
DELETE FROM redrive.inbox i WHERE i.id IN (
  SELECT x.id FROM redrive.inbox x WHERE x.at <= clock_timestamp() - $2::bigint * interval '1 microsecond' ORDER BY x.at LIMIT $1 FOR UPDATE SKIP LOCKED)

-- name: trim_dead
-- The dead letters of a queue that are too old, or too many; none that is leased.
--   $1 queue    $2 most    $3 greatest age, us (0: any)    $4 how many there are too many
SELECT x.id FROM (
  SELECT d.id, d.died, row_number() OVER (ORDER BY d.died, d.id) AS place, d.leased AND d.due > clock_timestamp() AS held
  FROM redrive.dead d WHERE d.queue = $1 ORDER BY d.died, d.id LIMIT $2 + 1000) x
WHERE NOT x.held AND (x.place <= $4 OR $3::bigint > 0 AND x.died < clock_timestamp() - $3::bigint * interval '1 microsecond')
ORDER BY x.died, x.id
LIMIT $2

-- name: once
--   $1 id
INSERT INTO redrive.inbox (id, at) VALUES ($1, clock_timestamp()) ON CONFLICT (id) DO NOTHING

-- name: horizon
-- What keeps dead rows from being removed: the oldest snapshot of all sessions, prepared
-- transactions and replication slots, in transactions, and the longest transaction.
SELECT coalesce(greatest(
    (SELECT max(age(a.backend_xmin)) FROM pg_stat_activity a WHERE a.backend_xmin IS NOT NULL),
    (SELECT max(age(p.transaction)) FROM pg_prepared_xacts p),
    (SELECT max(greatest(age(r.xmin), age(r.catalog_xmin))) FROM pg_replication_slots r)), 0),
  coalesce((SELECT extract(epoch FROM max(clock_timestamp() - a.xact_start)) FROM pg_stat_activity a
    WHERE a.backend_xmin IS NOT NULL AND a.datname = current_database()), 0)::float8,
  coalesce((SELECT sum(s.n_dead_tup) FROM pg_stat_user_tables s WHERE s.schemaname = $1), 0)::bigint

-- name: broken_indexes
-- Indexes of the schema that the server does not use or keep: a rebuild of them was interrupted.
SELECT quote_ident(n.nspname) || '.' || quote_ident(c.relname) FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = $1 AND NOT (i.indisvalid AND i.indisready) ORDER BY 1

-- name: setting
--   $1 names
SELECT s.name, s.setting FROM pg_settings s WHERE s.name = ANY ($1::text[])

-- name: room
-- Connections of the whole server, and how many a user without privileges may have.
SELECT (SELECT sum(d.numbackends) FROM pg_stat_database d)::bigint,
  current_setting('max_connections')::bigint - current_setting('superuser_reserved_connections')::bigint
    - coalesce(current_setting('reserved_connections', true), '0')::bigint

-- name: lock_texts
-- Texts that no dead letter has and that no process has met for a day. Whoever lets a message die with
-- one of them waits then.
--   $1 most
SELECT x.queue, x.hash FROM redrive.text x
WHERE x.used < clock_timestamp() - interval '1 day' AND NOT EXISTS (SELECT FROM redrive.dead d WHERE d.queue = x.queue AND d.text = x.hash)
LIMIT $1 FOR UPDATE SKIP LOCKED

-- name: trim_texts
-- Removes those of them that no dead letter has, as of now.
--   $1 queues    $2 hashes
DELETE FROM redrive.text t USING unnest($1::text[], $2::bigint[]) AS i (queue, hash)
WHERE t.queue = i.queue AND t.hash = i.hash AND NOT EXISTS (SELECT FROM redrive.dead d WHERE d.queue = t.queue AND d.text = t.hash)
