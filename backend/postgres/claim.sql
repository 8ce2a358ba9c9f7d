-- Claims. Each is one statement: a pick_* followed by take. The picked rows are a
-- MATERIALIZED list, so that the limit holds whatever the plan is.
--   $1 queue          $2 most messages     $3 lease in microseconds
--   $4 nonce          $5 isolated             $6 instance
--   $7 kinds          $8 except kinds      $9 except ids       (null: no such filter)
--   $10, $11          of the pick
-- A claim is not synced: losing it in a crash of the server loses no message, and its
-- receipt has no twin because of the nonce.

-- name: pick_lane
-- The oldest due of a lane, from a point in time on before which the lane was found
-- empty.
--   $10 lane          $11 from
WITH t AS MATERIALIZED (
  SELECT clock_timestamp() AS now, set_config('synchronous_commit', 'off', true)
),
picked AS MATERIALIZED (
  SELECT m.queue, m.id, m.class, m.due
  FROM redrive.message m
  WHERE m.queue = $1 AND m.class = $10 AND m.due <= (SELECT now FROM t) AND m.due >= $11
    AND ($7::text[] IS NULL OR m.kind = ANY ($7::text[])) AND ($8::text[] IS NULL OR m.kind <> ALL ($8::text[]))
    AND ($9::text[] IS NULL OR m.id <> ALL ($9::text[]))
  ORDER BY m.due, m.seq
  LIMIT $2
  FOR UPDATE SKIP LOCKED
)

-- name: pick_isolated
-- Suspects: named so, or left behind by a lease that ran out; the one that waits
-- longest first.
--   $10 from
WITH t AS MATERIALIZED (
  SELECT clock_timestamp() AS now, set_config('synchronous_commit', 'off', true)
),
picked AS MATERIALIZED (
  SELECT m.queue, m.id, m.class, m.due
  FROM redrive.message m
  WHERE m.queue = $1 AND m.class IN (3, 5) AND m.due <= (SELECT now FROM t) AND m.due >= $10
    AND ($7::text[] IS NULL OR m.kind = ANY ($7::text[])) AND ($8::text[] IS NULL OR m.kind <> ALL ($8::text[]))
    AND ($9::text[] IS NULL OR m.id <> ALL ($9::text[]))
  ORDER BY m.due, m.seq
  LIMIT $2
  FOR UPDATE SKIP LOCKED
)

-- name: pick_expired
-- What has expired and nobody holds.
WITH t AS MATERIALIZED (
  SELECT clock_timestamp() AS now, set_config('synchronous_commit', 'off', true)
),
picked AS MATERIALIZED (
  SELECT m.queue, m.id, m.class, m.due
  FROM redrive.message m
  WHERE m.queue = $1 AND m.expires <= (SELECT now FROM t) AND (m.class < 5 OR m.due <= (SELECT now FROM t))
    AND ($7::text[] IS NULL OR m.kind = ANY ($7::text[])) AND ($8::text[] IS NULL OR m.kind <> ALL ($8::text[]))
    AND ($9::text[] IS NULL OR m.id <> ALL ($9::text[]))
  ORDER BY m.expires
  LIMIT $2
  FOR UPDATE SKIP LOCKED
)

-- name: pick_old
-- What was published too long ago. What is due too was published before, so the due
-- ones are looked at in the order of the index; of the others only a bounded number,
-- from a message on at which the last look ended.
--   $10 greatest age in microseconds       $11 id to go on after
WITH t AS MATERIALIZED (
  SELECT clock_timestamp() AS now, clock_timestamp() - $10::bigint * interval '1 microsecond' AS born,
    set_config('synchronous_commit', 'off', true)
),
looked AS (
  (SELECT m.queue, m.id FROM redrive.message m
   WHERE m.queue = $1 AND m.class <= 4 AND m.due <= (SELECT born FROM t) AND m.published <= (SELECT born FROM t)
     AND ($7::text[] IS NULL OR m.kind = ANY ($7::text[])) AND ($8::text[] IS NULL OR m.kind <> ALL ($8::text[]))
     AND ($9::text[] IS NULL OR m.id <> ALL ($9::text[]))
   LIMIT $2)
  UNION
  (SELECT x.queue, x.id FROM (
     SELECT * FROM redrive.message m WHERE m.queue = $1 AND m.id > $11 ORDER BY m.id LIMIT 20000) x
   WHERE x.published <= (SELECT born FROM t) AND (x.class < 5 OR x.due <= (SELECT now FROM t))
     AND ($7::text[] IS NULL OR x.kind = ANY ($7::text[])) AND ($8::text[] IS NULL OR x.kind <> ALL ($8::text[]))
     AND ($9::text[] IS NULL OR x.id <> ALL ($9::text[]))
   LIMIT $2)
),
picked AS MATERIALIZED (
  SELECT m.queue, m.id, m.class, m.due
  FROM redrive.message m
  WHERE (m.queue, m.id) IN (SELECT queue, id FROM looked)
    AND m.published <= (SELECT born FROM t) AND (m.class < 5 OR m.due <= (SELECT now FROM t))
  LIMIT $2
  FOR UPDATE SKIP LOCKED
)

-- name: take
-- Puts the picked rows under the lease and returns them. What most messages have none
-- of comes together in the last column, null for them: each column of a row costs.
UPDATE redrive.message m
SET class = CASE WHEN p.class IN (4, 6) THEN 6 ELSE 5 END,
    due = t.now + $3::bigint * interval '1 microsecond',
    token = m.token + 1,
    nonce = $4,
    attempts = m.attempts + 1,
    crashes = m.crashes + (p.class >= 5 AND m.isolated)::integer,
    suspect = m.suspect OR p.class >= 5,
    isolated = $5,
    instance = $6
FROM picked p, t
WHERE m.queue = p.queue AND m.id = p.id
RETURNING t.now, p.due, m.seq, m.id, m.lane, m.attempts, m.token, m.kind, m.headers, m.published, m.expires, m.body, m.crc,
  CASE WHEN m.failures = 0 AND m.crashes = 0 AND NOT m.suspect AND m.turn = 0 AND m.key = '' AND m.reply_to = '' AND m.generation = 0
    AND m.redrives = 0 AND m.plan = '' AND m.origin = '' AND m.edited_from = '' THEN NULL
  ELSE json_build_object('failures', m.failures, 'crashes', m.crashes, 'suspect', m.suspect, 'turn', m.turn, 'key', m.key,
    'reply_to', m.reply_to, 'generation', m.generation, 'redrives', m.redrives, 'plan', m.plan, 'origin', m.origin,
    'edited_from', m.edited_from) END

-- name: claim_dead
-- Dead letters that a processor may have. They stay where they are.
--   $1 queue    $2 most messages    $3 lease in microseconds    $4 nonce    $5 instance
--   $6 kinds    $7 except kinds     $8 except ids
WITH t AS MATERIALIZED (
  SELECT clock_timestamp() AS now
),
picked AS MATERIALIZED (
  SELECT d.queue, d.id, d.due
  FROM redrive.dead d
  WHERE d.queue = $1 AND d.due <= (SELECT now FROM t)
    AND ($6::text[] IS NULL OR d.kind = ANY ($6::text[])) AND ($7::text[] IS NULL OR d.kind <> ALL ($7::text[]))
    AND ($8::text[] IS NULL OR d.id <> ALL ($8::text[]))
  ORDER BY d.due
  LIMIT $2
  FOR UPDATE SKIP LOCKED
)
UPDATE redrive.dead d
SET due = t.now + $3::bigint * interval '1 microsecond', token = d.token + 1, nonce = $4, leased = true, instance = $5
FROM picked p, t
WHERE d.queue = p.queue AND d.id = p.id
RETURNING t.now, p.due, d.seq, d.id, d.lane, d.attempts + 1, d.token, d.kind, d.headers, d.published, d.expires, d.body, d.crc,
  json_build_object('failures', d.failures, 'crashes', d.crashes, 'turn', d.turn, 'key', d.key, 'reply_to', d.reply_to,
    'generation', d.generation, 'redrives', d.redrives, 'plan', d.plan, 'origin', d.origin, 'edited_from', d.edited_from,
    'reason', d.reason)

-- name: extend
-- Lets leases run from now on anew, if they have not run out. Returns what was extended.
-- Class and due are hidden from the index of claims; see settle.sql.
--   $1 queues    $2 ids    $3 tokens    $4 nonces    $5 dead ones    $6 lease in microseconds
WITH t AS MATERIALIZED (
  SELECT clock_timestamp() AS now, set_config('synchronous_commit', 'off', true)
),
item AS MATERIALIZED (
  SELECT * FROM (
    SELECT * FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[], $5::boolean[]) WITH ORDINALITY
      AS i (queue, id, token, nonce, dead, ord)
    LIMIT (SELECT 1000000)) i
  LIMIT (SELECT 1000000)
),
held AS (
  UPDATE redrive.message m SET due = t.now + $6::bigint * interval '1 microsecond'
  FROM item i, t
  WHERE NOT i.dead AND m.queue = i.queue AND m.id = i.id AND m.token = i.token AND m.nonce = i.nonce AND m.class + 0 >= 5 AND m.due - t.now > interval '0'
  RETURNING i.ord
),
held_dead AS (
  UPDATE redrive.dead d SET due = t.now + $6::bigint * interval '1 microsecond'
  FROM item i, t
  WHERE i.dead AND d.queue = i.queue AND d.id = i.id AND d.token = i.token AND d.nonce = i.nonce AND d.leased AND d.due - t.now > interval '0'
  RETURNING i.ord
)
SELECT ord FROM held UNION ALL SELECT ord FROM held_dead

-- name: there
-- Which of the messages exist at all, waiting or dead.
--   $1 queues    $2 ids
SELECT i.ord
FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS i (queue, id, ord)
CROSS JOIN LATERAL (
  SELECT true FROM redrive.message m WHERE m.queue = i.queue AND m.id = i.id
  UNION ALL
  SELECT true FROM redrive.dead d WHERE d.queue = i.queue AND d.id = i.id
  LIMIT 1) x

-- name: old_place
-- The message at which pick_old has ended its look; none if it came to the end.
--   $1 queue    $2 id to go on after
SELECT m.id FROM redrive.message m WHERE m.queue = $1 AND m.id > $2 ORDER BY m.id OFFSET 19999 LIMIT 1
