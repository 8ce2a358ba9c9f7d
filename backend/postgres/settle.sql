-- Settlements of waiting messages.
-- What did not hold is looked for only if something is missing, and by an array: to the
-- planner each list has one row, so that it would join two of them row by row.
-- "LIMIT (SELECT ...)" hides from the planner how many items there are: it then goes by
-- the index for any number of them, also while it has no statistics of the table.
-- "class + 0" keeps the index of claims out of it: while the statistics know of no leased
-- message it seems a good way to one, and every item would step over all of them.

-- name: settle_done
-- Ends messages as done and returns the places of those whose claim did not hold.
--   $1 queues    $2 ids    $3 tokens    $4 nonces
WITH item AS MATERIALIZED (
  SELECT * FROM (
    SELECT * FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[]) WITH ORDINALITY AS i (queue, id, token, nonce, ord)
    LIMIT (SELECT 1000000)) i
  LIMIT (SELECT 1000000)
),
gone AS MATERIALIZED (
  DELETE FROM redrive.message m USING item i
  WHERE m.queue = i.queue AND m.id = i.id AND m.token = i.token AND m.nonce = i.nonce AND m.class + 0 >= 5 AND m.turn = 0
  RETURNING i.ord, m.queue, m.id, m.lane, m.size, m.chosen
),
ended AS (
  UPDATE redrive.remembered r SET outcome = 1, reason = 0, at = clock_timestamp(), until = clock_timestamp() + r.keep
  FROM gone g WHERE g.chosen AND r.queue = g.queue AND r.id = g.id
),
booked AS (
  INSERT INTO redrive.delta (queue, done, fresh, retry, redrive, bytes)
  SELECT queue, count(*), nullif(-count(*) FILTER (WHERE lane = 0), 0), nullif(-count(*) FILTER (WHERE lane = 1), 0),
    nullif(-count(*) FILTER (WHERE lane = 2), 0), -sum(size)
  FROM gone GROUP BY queue
)
SELECT i.ord FROM item i
WHERE (SELECT count(*) FROM gone) < (SELECT count(*) FROM item) AND i.ord <> ALL (ARRAY(SELECT g.ord FROM gone g))

-- name: keys_of
-- Locks the keys that messages stand in line in, in the order of the keys, and returns
-- the place of each message with its key. Their rows come from a statement of their own
-- afterwards, which sees what was published while this one waited.
--   $1 queues    $2 ids
WITH lined AS MATERIALIZED (
  SELECT i.ord, i.queue, x.key
  FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS i (queue, id, ord)
  JOIN LATERAL (
    SELECT m.key FROM redrive.message m WHERE m.queue = i.queue AND m.id = i.id AND m.turn > 0
    UNION ALL
    SELECT d.key FROM redrive.dead d WHERE d.queue = i.queue AND d.id = i.id AND d.turn > 0
  ) x ON true
),
locked AS MATERIALIZED (
  SELECT k.queue, k.key FROM redrive.ordered_key k
  WHERE (k.queue, k.key) IN (SELECT queue, key FROM lined)
  ORDER BY k.queue, k.key
  FOR UPDATE
)
SELECT l.ord, l.key FROM lined l LEFT JOIN locked k USING (queue, key) ORDER BY l.ord

-- name: settle
-- Settles messages whatever the outcome. Returns a row for each whose claim did not
-- hold (false), and for each that left the order of its key (true).
--   $1 queues    $2 ids            $3 tokens    $4 nonces    $5 outcomes    $6 delays, us
--   $7 reasons   $8 failures (json or null)     $9 signatures of the failures    $10 their texts
-- outcomes: 1 done, 2 retry, 3 release, 4 dead, 5 repeat, 6 drop
WITH t AS MATERIALIZED (
  SELECT clock_timestamp() AS now
),
item AS MATERIALIZED (
  SELECT i.*, coalesce(q.dead_release, false) AS lets_go
  FROM (
    SELECT * FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[], $5::smallint[], $6::bigint[], $7::smallint[], $8::text[], $9::text[],
        $10::bigint[])
      WITH ORDINALITY AS i (queue, id, token, nonce, outcome, delay, reason, failure, signature, text, ord)
    LIMIT (SELECT 1000000)) i
  LEFT JOIN redrive.queue q ON q.name = i.queue
  LIMIT (SELECT 1000000)
),
held AS MATERIALIZED (
  SELECT i.*, m.lane, m.size, m.chosen, m.turn, m.key
  FROM item i JOIN redrive.message m ON m.queue = i.queue AND m.id = i.id
  WHERE m.token = i.token AND m.nonce = i.nonce AND m.class + 0 >= 5
  ORDER BY i.queue, i.id
  FOR UPDATE OF m
),
kept AS MATERIALIZED ( -- the texts that are there, until the commit
  SELECT x.queue, x.hash FROM (SELECT DISTINCT h.queue, h.text FROM held h WHERE h.outcome = 4 AND h.text <> 0 ORDER BY h.queue, h.text) i
  CROSS JOIN LATERAL (SELECT * FROM redrive.text x WHERE x.queue = i.queue AND x.hash = i.text FOR KEY SHARE) x
),
back AS (
  UPDATE redrive.message m
  SET class = CASE WHEN m.class = 6 THEN 4 WHEN h.outcome = 2 THEN 1 WHEN m.suspect THEN 3 ELSE m.lane END,
      lane = CASE WHEN h.outcome = 2 THEN 1 ELSE m.lane END,
      due = t.now + h.delay * interval '1 microsecond', delayed = h.delay > 0,
      attempts = m.attempts - (h.outcome = 3)::integer,
      failures = m.failures + (h.outcome = 2 AND h.failure IS NOT NULL)::integer,
      suspect = m.suspect AND h.outcome = 3,
      first_failure = coalesce(m.first_failure, h.failure::json),
      last_failure = CASE WHEN m.first_failure IS NOT NULL AND h.failure IS NOT NULL THEN h.failure::json ELSE m.last_failure END,
      isolated = false, instance = ''
  FROM held h, t
  WHERE h.outcome IN (2, 3) AND m.queue = h.queue AND m.id = h.id
),
again AS (
  UPDATE redrive.message m
  SET class = CASE WHEN m.turn > 0 THEN 4 ELSE 0 END, lane = 0, due = t.now + h.delay * interval '1 microsecond', delayed = h.delay > 0,
      published = t.now,
      generation = m.generation + 1, attempts = 0, failures = 0, earlier = 0, crashes = 0, suspect = false,
      first_failure = NULL, last_failure = NULL, original = NULL, isolated = false, instance = ''
  FROM held h, t
  WHERE h.outcome = 5 AND m.queue = h.queue AND m.id = h.id
),
gone AS (
  DELETE FROM redrive.message m USING held h
  WHERE h.outcome IN (1, 4, 6) AND m.queue = h.queue AND m.id = h.id
  RETURNING m.*, h.outcome, h.reason, h.failure, h.signature, h.text, h.lets_go
),
buried AS (
  INSERT INTO redrive.dead (seq, died, due, published, expires, token, nonce, turn, attempts, failures, earlier, crashes, generation,
    redrives, size, crc, reason, lane, chosen, queue, id, signature, kind, key, reply_to, plan, origin, edited_from, headers,
    first_failure, last_failure, original, text, body)
  SELECT g.seq, t.now, t.now, g.published, g.expires, g.token, g.nonce, CASE WHEN g.lets_go THEN 0 ELSE g.turn END,
    g.attempts, g.failures + (g.failure IS NOT NULL)::integer, g.earlier, g.crashes, g.generation, g.redrives, g.size, g.crc,
    g.reason, g.lane, g.chosen, g.queue, g.id,
    CASE WHEN g.failure IS NOT NULL THEN g.signature ELSE coalesce(coalesce(g.last_failure, g.first_failure) ->> 'signature', '') END,
    g.kind, g.key, g.reply_to, g.plan, g.origin, g.edited_from, g.headers,
    coalesce(g.first_failure, g.failure::json),
    CASE WHEN g.first_failure IS NOT NULL AND g.failure IS NOT NULL THEN g.failure::json ELSE g.last_failure END,
    g.original, CASE WHEN g.failure IS NULL AND g.first_failure IS NULL THEN NULL
      WHEN g.failure IS NOT NULL AND (g.queue, g.text) IN (SELECT k.queue, k.hash FROM kept k) THEN g.text ELSE 0 END, g.body
  FROM gone g, t
  WHERE g.outcome = 4
  RETURNING queue, reason, signature
),
caused AS (
  INSERT INTO redrive.cause_delta (queue, reason, signature, width, start, dead, deaths)
  SELECT b.queue, b.reason, b.signature, 60, date_trunc('minute', t.now), count(*), count(*)
  FROM buried b, t GROUP BY b.queue, b.reason, b.signature, t.now
),
remember AS (
  UPDATE redrive.remembered r
  SET outcome = h.outcome, reason = CASE WHEN h.outcome IN (4, 6) THEN h.reason ELSE 0 END, at = t.now,
      until = CASE WHEN h.outcome = 4 THEN NULL ELSE t.now + r.keep END
  FROM held h, t
  WHERE h.chosen AND h.outcome IN (1, 4, 6) AND r.queue = h.queue AND r.id = h.id
),
booked AS (
  INSERT INTO redrive.delta (queue, done, repeated, dropped, fresh, retry, redrive, bytes,
    exhausted, permanent, crashed, expired, undecodable, oversize, unroutable, rejected, loop, uncertain, disabled, manual, corrupt)
  SELECT h.queue, nullif(count(*) FILTER (WHERE outcome IN (1, 5)), 0), nullif(count(*) FILTER (WHERE outcome = 5), 0),
    nullif(count(*) FILTER (WHERE outcome = 6), 0),
    nullif(count(*) FILTER (WHERE outcome = 5 AND lane <> 0) - count(*) FILTER (WHERE lane = 0 AND outcome IN (1, 2, 4, 6)), 0),
    nullif(count(*) FILTER (WHERE outcome = 2 AND lane <> 1) - count(*) FILTER (WHERE lane = 1 AND outcome IN (1, 4, 5, 6)), 0),
    nullif(-count(*) FILTER (WHERE lane = 2 AND outcome IN (1, 2, 4, 5, 6)), 0),
    -sum(h.size) FILTER (WHERE outcome IN (1, 4, 6)),
    nullif(count(*) FILTER (WHERE outcome = 4 AND reason = 1), 0), nullif(count(*) FILTER (WHERE outcome = 4 AND reason = 2), 0),
    nullif(count(*) FILTER (WHERE outcome = 4 AND reason = 3), 0), nullif(count(*) FILTER (WHERE outcome = 4 AND reason = 4), 0),
    nullif(count(*) FILTER (WHERE outcome = 4 AND reason = 5), 0), nullif(count(*) FILTER (WHERE outcome = 4 AND reason = 6), 0),
    nullif(count(*) FILTER (WHERE outcome = 4 AND reason = 7), 0), nullif(count(*) FILTER (WHERE outcome = 4 AND reason = 8), 0),
    nullif(count(*) FILTER (WHERE outcome = 4 AND reason = 9), 0), nullif(count(*) FILTER (WHERE outcome = 4 AND reason = 10), 0),
    nullif(count(*) FILTER (WHERE outcome = 4 AND reason = 11), 0), nullif(count(*) FILTER (WHERE outcome = 4 AND reason = 12), 0),
    nullif(count(*) FILTER (WHERE outcome = 4 AND reason = 13), 0)
  FROM held h
  WHERE outcome <> 3 AND NOT (outcome = 2 AND lane = 1)
  GROUP BY h.queue
)
SELECT i.ord, false, '' FROM item i
WHERE (SELECT count(*) FROM held) < (SELECT count(*) FROM item) AND i.ord <> ALL (ARRAY(SELECT h.ord FROM held h))
UNION ALL
SELECT h.ord, true, h.key FROM held h WHERE h.turn > 0 AND (h.outcome IN (1, 5, 6) OR h.outcome = 4 AND h.lets_go)

-- name: store_texts
-- Puts texts into the table of distinct ones if there is room, and returns those that are there, and
-- whether they are new.
--   $1 queues    $2 hashes    $3 errors    $4 answers    $5 room
INSERT INTO redrive.text AS t (queue, hash, error, answer)
SELECT i.queue, i.hash, i.error, i.answer FROM unnest($1::text[], $2::bigint[], $3::text[], $4::text[], $5::boolean[]) AS i (queue, hash, error, answer, room)
WHERE i.room OR EXISTS (SELECT FROM redrive.text x WHERE x.queue = i.queue AND x.hash = i.hash)
ORDER BY i.queue, i.hash
ON CONFLICT (queue, hash) DO UPDATE SET used = excluded.used WHERE t.error = excluded.error AND t.answer = excluded.answer
RETURNING t.queue, t.hash, t.xmax = 0
