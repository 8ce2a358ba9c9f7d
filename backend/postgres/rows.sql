-- Whole messages, as the changes that are not on the hot path handle them. ":columns_*"
-- stands for the lists below; those of message and dead have the same order. "LIMIT
-- (SELECT ...)" hides from the planner how many items there are: it then goes by the index.

-- name: columns_message
m.queue, m.id, m.seq, m.due, NULL::timestamptz, m.published, m.expires, m.token, m.nonce, m.turn, m.attempts, m.failures,
m.earlier, m.crashes, m.generation, m.redrives, m.size, m.class, m.lane, 0, m.suspect, m.chosen, m.isolated, false, m.kind, m.key,
m.instance, m.reply_to, m.plan, m.origin, m.edited_from, '', m.crc, m.delayed, NULL::bigint

-- name: columns_dead
d.queue, d.id, d.seq, d.due, d.died, d.published, d.expires, d.token, d.nonce, d.turn, d.attempts, d.failures,
d.earlier, d.crashes, d.generation, d.redrives, d.size, 0, d.lane, d.reason, false, d.chosen, false, d.leased, d.kind, d.key,
d.instance, d.reply_to, d.plan, d.origin, d.edited_from, d.signature, d.crc, false, d.text

-- name: columns_message_parts
m.headers, m.first_failure, m.last_failure, m.original, m.body

-- name: columns_dead_parts
d.headers, d.first_failure, d.last_failure, d.original, d.body

-- name: columns_no_parts
NULL::json, NULL::json, NULL::json, NULL::json, NULL::bytea

-- name: columns_said
NULL::json, CASE WHEN d.text = 0 THEN d.first_failure END, CASE WHEN d.text = 0 THEN d.last_failure END, NULL::json, NULL::bytea

-- name: lock_messages
--   $1 queues    $2 ids
SELECT :columns_message, :columns_message_parts
FROM (SELECT * FROM unnest($1::text[], $2::text[]) AS i (queue, id) LIMIT (SELECT 1000000)) i JOIN redrive.message m ON m.queue = i.queue AND m.id = i.id
ORDER BY m.queue, m.id
FOR UPDATE OF m

-- name: lock_dead
--   $1 queues    $2 ids
SELECT :columns_dead, :columns_dead_parts
FROM (SELECT * FROM unnest($1::text[], $2::text[]) AS i (queue, id) LIMIT (SELECT 1000000)) i JOIN redrive.dead d ON d.queue = i.queue AND d.id = i.id
ORDER BY d.queue, d.id
FOR UPDATE OF d

-- name: get_messages
--   $1 queues    $2 ids
SELECT :columns_message, :columns_message_parts
FROM (SELECT * FROM unnest($1::text[], $2::text[]) AS i (queue, id) LIMIT (SELECT 1000000)) i JOIN redrive.message m ON m.queue = i.queue AND m.id = i.id
UNION ALL
SELECT :columns_dead, :columns_dead_parts
FROM (SELECT * FROM unnest($1::text[], $2::text[]) AS i (queue, id) LIMIT (SELECT 1000000)) i JOIN redrive.dead d ON d.queue = i.queue AND d.id = i.id

-- name: delete_messages
--   $1 queues    $2 ids
DELETE FROM redrive.message m USING (SELECT * FROM unnest($1::text[], $2::text[]) AS i (queue, id) LIMIT (SELECT 1000000)) i WHERE m.queue = i.queue AND m.id = i.id

-- name: delete_dead
--   $1 queues    $2 ids
DELETE FROM redrive.dead d USING (SELECT * FROM unnest($1::text[], $2::text[]) AS i (queue, id) LIMIT (SELECT 1000000)) i WHERE d.queue = i.queue AND d.id = i.id

-- name: insert_messages
-- A message without seq (0) gets the next one.
--   $1 ... arrays in the order of the columns
INSERT INTO redrive.message (queue, id, seq, due, published, expires, token, nonce, turn, attempts, failures, earlier, crashes,
  generation, redrives, size, class, lane, suspect, chosen, kind, key, reply_to, plan, origin, edited_from,
  headers, first_failure, last_failure, original, body, crc, delayed)
SELECT queue, id, CASE WHEN seq = 0 THEN nextval('redrive.message_seq') ELSE seq END, due, published, expires, token, nonce, turn,
  attempts, failures, earlier, crashes, generation, redrives, size, class, lane, suspect, chosen, kind, key, reply_to, plan, origin,
  edited_from, headers::json, first_failure::json, last_failure::json, original::json, body, crc, delayed
FROM unnest($1::text[], $2::text[], $3::bigint[], $4::timestamptz[], $5::timestamptz[], $6::timestamptz[], $7::bigint[], $8::bigint[],
  $9::bigint[], $10::integer[], $11::integer[], $12::integer[], $13::integer[], $14::integer[], $15::integer[], $16::integer[],
  $17::smallint[], $18::smallint[], $19::boolean[], $20::boolean[], $21::text[], $22::text[], $23::text[], $24::text[], $25::text[],
  $26::text[], $27::text[], $28::text[], $29::text[], $30::text[], $31::bytea[], $32::integer[], $33::boolean[])
  AS i (queue, id, seq, due, published, expires, token, nonce, turn, attempts, failures, earlier, crashes,
    generation, redrives, size, class, lane, suspect, chosen, kind, key, reply_to, plan, origin, edited_from,
    headers, first_failure, last_failure, original, body, crc, delayed)

-- name: insert_dead
-- A text that is not there becomes 0; others stay there until the commit.
--   $1 ... arrays in the order of the columns
WITH kept AS MATERIALIZED (
  SELECT x.queue, x.hash
  FROM (SELECT DISTINCT i.queue, i.text FROM unnest($1::text[], $34::bigint[]) AS i (queue, text) WHERE i.text <> 0 ORDER BY i.queue, i.text) i
  CROSS JOIN LATERAL (SELECT * FROM redrive.text x WHERE x.queue = i.queue AND x.hash = i.text FOR KEY SHARE) x
)
INSERT INTO redrive.dead (queue, id, seq, died, due, published, expires, token, nonce, turn, attempts, failures, earlier, crashes,
  generation, redrives, size, reason, lane, chosen, signature, kind, key, reply_to, plan, origin, edited_from,
  headers, first_failure, last_failure, original, body, crc, text)
SELECT queue, id, CASE WHEN seq = 0 THEN nextval('redrive.message_seq') ELSE seq END, died, due, published, expires, token, nonce,
  turn, attempts, failures, earlier, crashes, generation, redrives, size, reason, lane, chosen, signature, kind, key, reply_to, plan,
  origin, edited_from, headers::json, first_failure::json, last_failure::json, original::json, body, crc,
  CASE WHEN text IS NULL OR (queue, text) IN (SELECT k.queue, k.hash FROM kept k) THEN text ELSE 0 END
FROM unnest($1::text[], $2::text[], $3::bigint[], $4::timestamptz[], $5::timestamptz[], $6::timestamptz[], $7::timestamptz[],
  $8::bigint[], $9::bigint[], $10::bigint[], $11::integer[], $12::integer[], $13::integer[], $14::integer[], $15::integer[],
  $16::integer[], $17::integer[], $18::smallint[], $19::smallint[], $20::boolean[], $21::text[], $22::text[], $23::text[], $24::text[],
  $25::text[], $26::text[], $27::text[], $28::text[], $29::text[], $30::text[], $31::text[], $32::bytea[], $33::integer[], $34::bigint[])
  AS i (queue, id, seq, died, due, published, expires, token, nonce, turn, attempts, failures, earlier, crashes,
    generation, redrives, size, reason, lane, chosen, signature, kind, key, reply_to, plan, origin, edited_from,
    headers, first_failure, last_failure, original, body, crc, text)

-- name: reserve
-- Remembers ids that callers chose, and returns the places of those that are free.
--   $1 queues    $2 ids    $3 hashes    $4 made: look for the message itself too
WITH t AS MATERIALIZED (
  SELECT clock_timestamp() AS now
),
input AS MATERIALIZED (
  SELECT i.*, coalesce(q.remember, interval '24 hours') AS keep
  FROM unnest($1::text[], $2::text[], $3::bigint[], $4::boolean[]) WITH ORDINALITY AS i (queue, id, hash, made, ord)
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
  WHERE x.taken IS NULL
  ORDER BY i.queue, i.id
  ON CONFLICT (queue, id) DO UPDATE SET hash = excluded.hash, outcome = 0, reason = 0, at = excluded.at, keep = excluded.keep, until = NULL
    WHERE r.until <= excluded.at
  RETURNING r.queue, r.id
)
SELECT i.ord FROM input i JOIN reserved r ON r.queue = i.queue AND r.id = i.id

-- name: forget_removed
-- Forgets an id whose message was archived or dropped, so that it can be put back.
--   $1 queue    $2 id
DELETE FROM redrive.remembered r WHERE r.queue = $1 AND r.id = $2 AND r.until IS NOT NULL AND r.outcome IN (4, 6)

-- name: remember
-- Notes what became of messages whose ids are remembered.
--   $1 queues    $2 ids    $3 outcomes    $4 reasons    $5 ended: the memory ends some day
UPDATE redrive.remembered r
SET outcome = i.outcome, reason = i.reason, at = clock_timestamp(), until = CASE WHEN i.ended THEN clock_timestamp() + r.keep END
FROM (SELECT * FROM unnest($1::text[], $2::text[], $3::smallint[], $4::smallint[], $5::boolean[]) AS i (queue, id, outcome, reason, ended)
  LIMIT (SELECT 1000000)) i
WHERE r.queue = i.queue AND r.id = i.id

-- name: settings
-- What the store knows about queues.
--   $1 queues
SELECT q.name, q.order_by_key, q.dead_release, (extract(epoch FROM q.remember) * 1000000)::bigint FROM redrive.queue q WHERE q.name = ANY ($1::text[])

-- name: now
SELECT clock_timestamp()

-- name: range
-- The waiting messages of a key that nobody holds, up to one of them, or only that one.
--   $1 queue    $2 key    $3 id of the last    $4 only that one
SELECT m.id FROM redrive.message m
WHERE m.queue = $1 AND m.key = $2 AND m.key <> '' AND (m.class < 5 OR m.due <= clock_timestamp())
  AND (NOT $4 OR m.id = $3)
  AND m.seq <= (SELECT l.seq FROM redrive.message l WHERE l.queue = $1 AND l.id = $3 AND l.key = $2
    UNION ALL SELECT l.seq FROM redrive.dead l WHERE l.queue = $1 AND l.id = $3 AND l.key = $2 LIMIT 1)
ORDER BY m.seq
