-- Publishing. All arrays have an element a message.

-- name: publish
-- Stores messages as waiting and returns the places (from 1) of those that it refused,
-- because their id was accepted before. No id may occur twice.
--   $1 queues      $2 ids         $3 kinds       $4 keys         $5 headers      $6 bodies
--   $7 delays, us  $8 deliver at  $9 expires     $10 reply to    $11 generations $12 redrives
--   $13 plans      $14 origins    $15 edited     $16 sizes
--   $17 chosen     the id was chosen by the caller: it is remembered
--   $18 hashes     $20 checksums
--                  $19 made       the chosen id looks like one that a store makes, which
--                                 is not remembered: the message itself is looked for
WITH t AS MATERIALIZED (
  SELECT clock_timestamp() AS now
),
input AS MATERIALIZED (
  SELECT i.*, coalesce(q.order_by_key, false) AND i.key <> '' AS ordered, coalesce(q.remember, interval '24 hours') AS keep
  FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::bytea[], $7::bigint[], $8::timestamptz[], $9::timestamptz[],
    $10::text[], $11::integer[], $12::integer[], $13::text[], $14::text[], $15::text[], $16::integer[], $17::boolean[], $18::bigint[], $19::boolean[],
    $20::integer[])
    WITH ORDINALITY AS i (queue, id, kind, key, headers, body, delay, deliver_at, expires, reply_to, generation, redrives,
      plan, origin, edited_from, size, chosen, hash, made, crc, ord)
  LEFT JOIN redrive.queue q ON q.name = i.queue
),
reserved AS (
  INSERT INTO redrive.remembered AS r (queue, id, hash, outcome, reason, at, keep)
  SELECT i.queue, i.id, i.hash, 0, 0, t.now, i.keep
  FROM input i CROSS JOIN t LEFT JOIN LATERAL (
    SELECT true AS taken FROM redrive.message m WHERE i.made AND m.queue = i.queue AND m.id = i.id
    UNION ALL
    SELECT true FROM redrive.dead d WHERE i.made AND d.queue = i.queue AND d.id = i.id
    LIMIT 1) x ON true
  WHERE i.chosen AND x.taken IS NULL
  ORDER BY i.queue, i.id
  ON CONFLICT (queue, id) DO UPDATE SET hash = excluded.hash, outcome = 0, reason = 0, at = excluded.at, keep = excluded.keep, until = NULL
    WHERE r.until <= excluded.at
  RETURNING r.queue, r.id
),
accepted AS MATERIALIZED (
  SELECT i.*, row_number() OVER (PARTITION BY i.queue, i.key, i.ordered ORDER BY i.ord) AS place,
    count(*) OVER (PARTITION BY i.queue, i.key, i.ordered) AS together
  FROM input i
  WHERE NOT i.chosen OR (i.queue, i.id) IN (SELECT r.queue, r.id FROM reserved r)
),
line AS (
  INSERT INTO redrive.ordered_key AS k (queue, key, last_turn, members)
  SELECT a.queue, a.key, a.together, a.together FROM accepted a WHERE a.ordered AND a.place = 1 ORDER BY a.queue, a.key
  ON CONFLICT (queue, key) DO UPDATE SET last_turn = k.last_turn + excluded.members, members = k.members + excluded.members
  RETURNING k.queue, k.key, k.last_turn, k.members
),
stored AS (
  INSERT INTO redrive.message (queue, id, kind, key, headers, body, due, published, expires, reply_to, generation, redrives, plan,
    origin, edited_from, size, crc, chosen, delayed, turn, class)
  SELECT a.queue, a.id, a.kind, a.key, a.headers::json, a.body,
    greatest(t.now + a.delay * interval '1 microsecond', a.deliver_at), t.now, a.expires,
    a.reply_to, a.generation, a.redrives, a.plan, a.origin, a.edited_from, a.size, a.crc, a.chosen,
    greatest(t.now + a.delay * interval '1 microsecond', a.deliver_at) > t.now,
    coalesce(l.last_turn - a.together + a.place, 0),
    CASE WHEN l.members IS NULL OR a.place = 1 AND l.members = a.together THEN 0 ELSE 4 END
  FROM accepted a CROSS JOIN t LEFT JOIN line l ON a.ordered AND l.queue = a.queue AND l.key = a.key
  ORDER BY a.ord
),
booked AS (
  INSERT INTO redrive.delta (queue, published, fresh, bytes)
  SELECT queue, count(*), count(*), sum(size) FROM accepted GROUP BY queue
)
SELECT i.ord FROM input i
WHERE (SELECT count(*) FROM accepted) < (SELECT count(*) FROM input) AND i.ord <> ALL (ARRAY(SELECT a.ord FROM accepted a))

-- name: publish_plain
-- As publish, for messages without key, lineage, expiry, reply and chosen id: nothing
-- can be in their way.
--   $1 queues    $2 ids    $3 kinds    $4 headers    $5 bodies    $6 delays, us    $7 deliver at    $8 sizes
--   $9 checksums
WITH t AS MATERIALIZED (
  SELECT clock_timestamp() AS now
),
input AS MATERIALIZED (
  SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::bytea[], $6::bigint[], $7::timestamptz[], $8::integer[],
    $9::integer[]) AS i (queue, id, kind, headers, body, delay, deliver_at, size, crc)
),
booked AS (
  INSERT INTO redrive.delta (queue, published, fresh, bytes)
  SELECT queue, count(*), count(*), sum(size) FROM input GROUP BY queue
)
INSERT INTO redrive.message (queue, id, kind, headers, body, due, published, size, crc, delayed)
SELECT i.queue, i.id, i.kind, i.headers::json, i.body, greatest(t.now + i.delay * interval '1 microsecond', i.deliver_at), t.now, i.size, i.crc,
  greatest(t.now + i.delay * interval '1 microsecond', i.deliver_at) > t.now
FROM input i, t

-- name: publish_now
-- As publish_plain, for one queue and at once: fewer arrays, read as they come. What all
-- messages lack is null instead of an array.
--   $1 queue    $2 ids    $3 kinds or null    $4 headers or null    $5 bodies    $6 sizes
--   $7 messages $8 bytes  $9 checksums
WITH booked AS (
  INSERT INTO redrive.delta (queue, published, fresh, bytes) VALUES ($1, $7::bigint, $7::bigint, $8::bigint)
)
INSERT INTO redrive.message (queue, id, kind, headers, body, due, published, size, crc)
SELECT $1, i.id, coalesce(i.kind, ''), i.headers::json, i.body, t.now, t.now, i.size, i.crc
FROM (SELECT clock_timestamp() AS now OFFSET 0) t, (
  SELECT unnest($2::text[]) AS id, unnest($3::text[]) AS kind, unnest($4::text[]) AS headers, unnest($5::bytea[]) AS body,
    unnest($6::integer[]) AS size, unnest($9::integer[]) AS crc) i

-- name: publish_one
-- As publish_plain, for one message: without arrays it is planned and run faster.
--   $1 queue    $2 id    $3 kind    $4 headers    $5 body    $6 delay, us    $7 deliver at    $8 size    $9 checksum
WITH booked AS (
  INSERT INTO redrive.delta (queue, published, fresh, bytes) VALUES ($1, 1, 1, $8::integer)
)
INSERT INTO redrive.message (queue, id, kind, headers, body, published, due, size, crc, delayed)
SELECT $1, $2, $3, $4::text::json, $5, t.now, greatest(t.now + $6::bigint * interval '1 microsecond', $7::timestamptz), $8::integer, $9::integer,
  greatest(t.now + $6::bigint * interval '1 microsecond', $7::timestamptz) > t.now
FROM (SELECT clock_timestamp() AS now OFFSET 0) t

-- name: refused
-- The hashes of messages whose ids were accepted before. What is not remembered is
-- returned as it is, to be compared.
--   $1 queues    $2 ids
SELECT i.ord, r.hash, x.kind, x.key, x.body
FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS i (queue, id, ord)
LEFT JOIN LATERAL (
  SELECT r.hash FROM redrive.remembered r
  WHERE r.queue = i.queue AND r.id = i.id AND (r.until IS NULL OR r.until > clock_timestamp())
  LIMIT 1
) r ON true
LEFT JOIN LATERAL (
  SELECT m.kind, m.key, m.body FROM redrive.message m WHERE m.queue = i.queue AND m.id = i.id
  UNION ALL
  SELECT d.kind, d.key, d.body FROM redrive.dead d WHERE d.queue = i.queue AND d.id = i.id
  LIMIT 1
) x ON r.hash IS NULL

-- name: copied
-- The ledger of what was copied.
--   $1 queue    $2 messages    $3 bytes
INSERT INTO redrive.delta (queue, published, fresh, bytes) VALUES ($1, $2, $2, $3)

