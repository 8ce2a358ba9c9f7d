-- Looking into the store. Nothing here changes anything.

-- name: counts
-- The ledgers of queues, and what is counted as it is now.
--   $1 queues (null: all)    $2 how far due messages are counted
WITH t AS MATERIALIZED (
  SELECT clock_timestamp() AS now
),
differences AS MATERIALIZED (
  SELECT d.queue AS name, :sums FROM redrive.delta d WHERE $1::text[] IS NULL OR d.queue = ANY ($1::text[]) GROUP BY d.queue
),
known AS MATERIALIZED (
  SELECT coalesce(q.name, d.name) AS name, :totals
  FROM (SELECT * FROM redrive.queue q WHERE $1::text[] IS NULL OR q.name = ANY ($1::text[])) q FULL JOIN differences d ON d.name = q.name
)
SELECT k.name,
  (SELECT count(*) FROM redrive.message m WHERE m.queue = k.name AND m.class IN (5, 6) AND m.due > t.now),
  (SELECT count(*) FROM redrive.message m WHERE m.queue = k.name AND m.class = 4)
    + (SELECT count(*) FROM redrive.message m WHERE m.queue = k.name AND m.class = 6 AND m.due <= t.now),
  (SELECT count(*) FROM redrive.message m WHERE m.queue = k.name AND m.class = 3)
    + (SELECT count(*) FROM redrive.message m WHERE m.queue = k.name AND m.class IN (5, 6) AND m.due <= t.now),
  (SELECT count(*) FROM (
    (SELECT 1 FROM redrive.message m WHERE m.queue = k.name AND m.class = 0 AND m.due <= t.now LIMIT $2 + 1) UNION ALL
    (SELECT 1 FROM redrive.message m WHERE m.queue = k.name AND m.class = 1 AND m.due <= t.now LIMIT $2 + 1) UNION ALL
    (SELECT 1 FROM redrive.message m WHERE m.queue = k.name AND m.class = 2 AND m.due <= t.now LIMIT $2 + 1) UNION ALL
    (SELECT 1 FROM redrive.message m WHERE m.queue = k.name AND m.class = 3 AND m.due <= t.now LIMIT $2 + 1) UNION ALL
    (SELECT 1 FROM redrive.message m WHERE m.queue = k.name AND m.class = 5 AND m.due <= t.now LIMIT $2 + 1)) x),
  (SELECT min(m.due) FROM redrive.message m WHERE m.queue = k.name AND m.class = 0 AND m.due <= t.now),
  (SELECT min(m.due) FROM redrive.message m WHERE m.queue = k.name AND m.class = 1 AND m.due <= t.now),
  (SELECT min(m.due) FROM redrive.message m WHERE m.queue = k.name AND m.class = 2 AND m.due <= t.now),
  least((SELECT min(m.due) FROM redrive.message m WHERE m.queue = k.name AND m.class = 3 AND m.due <= t.now),
    (SELECT min(m.due) FROM redrive.message m WHERE m.queue = k.name AND m.class = 5 AND m.due <= t.now)),
  (SELECT min(d.died) FROM redrive.dead d WHERE d.queue = k.name),
  :ledger
FROM known k, t
ORDER BY k.name

-- name: peek
-- When classes of some queues begin, from points in time on before which they were found
-- empty, as class 7 the last death, and as class 8 what the time was.
--   $1 queues    $2 queues, $3 classes and $4 points in time of what may be claimed
SELECT '', 8, statement_timestamp(), 0::bigint, 0::float8
UNION ALL
SELECT i.queue, i.class, x.due, x.seq, extract(epoch FROM x.due - clock_timestamp())::float8
FROM unnest($2::text[], $3::bigint[], $4::timestamptz[]) AS i (queue, class, begins)
CROSS JOIN LATERAL (
  SELECT m.due, m.seq FROM redrive.message m
  WHERE m.queue = i.queue AND m.class = i.class::smallint AND m.due >= i.begins
  ORDER BY m.due, m.seq LIMIT 1
) x
UNION ALL
SELECT i.queue, 7, x.died, x.seq, 0
FROM unnest($1::text[]) AS i (queue)
CROSS JOIN LATERAL (SELECT d.died, d.seq FROM redrive.dead d WHERE d.queue = i.queue ORDER BY d.died DESC, d.id DESC LIMIT 1) x

-- name: first_due
-- Where a class of a queue begins, as a whole.
--   $1 queue    $2 class    $3 kinds    $4 except kinds       (null: no such filter)
SELECT statement_timestamp(), (
  SELECT m.due FROM redrive.message m
  WHERE m.queue = $1 AND m.class = $2 AND ($3::text[] IS NULL OR m.kind = ANY ($3::text[])) AND ($4::text[] IS NULL OR m.kind <> ALL ($4::text[]))
  ORDER BY m.due, m.seq LIMIT 1)

-- name: peek_all
-- When each class of all queues begins, by skipping from pair to pair in the index.
WITH RECURSIVE pair AS (
  (SELECT m.queue, m.class, m.due, m.seq FROM redrive.message m ORDER BY m.queue, m.class, m.due, m.seq LIMIT 1)
  UNION ALL
  SELECT n.queue, n.class, n.due, n.seq
  FROM pair p CROSS JOIN LATERAL (
    SELECT m.queue, m.class, m.due, m.seq FROM redrive.message m
    WHERE (m.queue, m.class) > (p.queue, p.class)
    ORDER BY m.queue, m.class, m.due, m.seq LIMIT 1) n
)
SELECT p.queue, p.class, p.due, p.seq, extract(epoch FROM p.due - clock_timestamp())::float8 FROM pair p WHERE p.class IN (0, 1, 2, 3, 5)

-- name: queue_names
-- The queues that hold something, or held something.
SELECT q.name FROM redrive.queue q UNION SELECT d.queue FROM redrive.delta d ORDER BY 1

-- name: find_waiting
-- A page of what waits, by id, of at most so many looked at.
--   $1 queue    $2 id to go on after    $3 most looked at    $4 most returned
--   $5 state    $6 kind    $7 key    $8 plan    $9 not plan    $10 since    $11 until
--   $12 body    $13 header name and $14 value, in Base64    $15 edited       (null: no such filter)
--   $16 waits for a retry    $17 signature of the last failure    $18 text
SELECT :columns_message, :parts
FROM (SELECT * FROM redrive.message x WHERE x.queue = $1 AND x.id > $2 ORDER BY x.id LIMIT $3) m
WHERE ($5::smallint IS NULL OR $5 = CASE WHEN m.class >= 5 AND m.due > clock_timestamp() THEN 2 WHEN m.class IN (4, 6) THEN 3 ELSE 1 END)
  AND ($6::text IS NULL OR m.kind = $6) AND ($7::text IS NULL OR m.key = $7)
  AND ($8::text IS NULL OR m.plan = $8) AND ($9::text IS NULL OR m.plan <> $9)
  AND ($10::timestamptz IS NULL OR m.published >= $10) AND ($11::timestamptz IS NULL OR m.published <= $11)
  AND ($12::text IS NULL OR position(convert_to($12, 'UTF8') IN m.body) > 0)
  AND ($18::text IS NULL OR position($18 IN coalesce(coalesce(m.last_failure, m.first_failure) ->> 'message', '')) > 0
    OR position($18 IN coalesce(coalesce(m.last_failure, m.first_failure) -> 'details' ->> 'http.response', '')) > 0)
  AND ($13::text IS NULL OR EXISTS (SELECT FROM json_array_elements(m.headers) h WHERE h ->> 0 = $13 AND ($14::text IS NULL OR h ->> 1 = $14)))
  AND (NOT $15::boolean OR m.original IS NOT NULL)
  AND (NOT $16::boolean OR m.lane = 1 AND (m.class < 4 OR m.class = 5 AND m.due <= clock_timestamp()))
  AND ($17::text IS NULL OR coalesce(m.last_failure, m.first_failure) ->> 'signature' = $17)
ORDER BY m.id
LIMIT $4

-- name: find_waiting_place
-- Where a page ended that had looked at as many as it may; nothing if it came to the end.
--   $1 queue    $2 id to go on after    $3 most looked at
SELECT x.id, NULL::timestamptz FROM redrive.message x WHERE x.queue = $1 AND x.id > $2 ORDER BY x.id OFFSET $3 - 1 LIMIT 1

-- name: find_dead
-- A page of dead letters, by the time of their death.
--   $1 queue    $2 id and $16 time to go on after    $17 reason    $18 signature    $19 text    others as find_waiting
-- ":narrow" is what an index serves besides.
SELECT :columns_dead, :parts
FROM (
  SELECT * FROM redrive.dead x
  WHERE x.queue = $1 AND (x.died, x.id) > ($16::timestamptz, $2) AND ($10::timestamptz IS NULL OR x.died >= $10)
    AND ($11::timestamptz IS NULL OR x.died <= $11)
    AND ($17::smallint IS NULL OR x.reason = $17) AND ($18::text IS NULL OR x.signature = $18):narrow
  ORDER BY x.died, x.id LIMIT $3) d
WHERE ($5::smallint IS NULL OR $5 = 4)
  AND ($6::text IS NULL OR d.kind = $6) AND ($7::text IS NULL OR d.key = $7)
  AND ($8::text IS NULL OR d.plan = $8) AND ($9::text IS NULL OR d.plan <> $9)
  AND ($12::text IS NULL OR position(convert_to($12, 'UTF8') IN d.body) > 0)
  AND ($19::text IS NULL OR position($19 IN coalesce(coalesce(d.last_failure, d.first_failure) ->> 'message', '')) > 0
    OR position($19 IN coalesce(coalesce(d.last_failure, d.first_failure) -> 'details' ->> 'http.response', '')) > 0)
  AND ($13::text IS NULL OR EXISTS (SELECT FROM json_array_elements(d.headers) h WHERE h ->> 0 = $13 AND ($14::text IS NULL OR h ->> 1 = $14)))
  AND (NOT $15::boolean OR d.original IS NOT NULL)
ORDER BY d.died, d.id
LIMIT $4

-- name: find_dead_place
--   $1 queue    $2 id and $4 time to go on after    $3 most looked at    $5 since    $6 until    $7 reason    $8 signature    $9 plan
SELECT x.id, x.died FROM redrive.dead x
WHERE x.queue = $1 AND (x.died, x.id) > ($4::timestamptz, $2) AND ($5::timestamptz IS NULL OR x.died >= $5)
  AND ($6::timestamptz IS NULL OR x.died <= $6)
  AND ($7::smallint IS NULL OR x.reason = $7) AND ($8::text IS NULL OR x.signature = $8):narrow
ORDER BY x.died, x.id OFFSET $3 - 1 LIMIT 1

-- name: find_texts
-- Dead letters by their texts, in the order of their death, at most so many of each and of all.
-- ":said" is what of the failures is needed.
--   $1 queue    $2 time and $3 id to go on after    $4 since    $5 until    $6 most    $7 texts
SELECT :columns_dead, :parts
FROM (
  SELECT x.id, x.died FROM unnest($7::bigint[]) AS t (text) CROSS JOIN LATERAL (
    SELECT y.id, y.died FROM redrive.dead y
    WHERE y.queue = $1 AND y.text = t.text AND (y.died, y.id) > ($2::timestamptz, $3)
      AND ($4::timestamptz IS NULL OR y.died >= $4) AND ($5::timestamptz IS NULL OR y.died <= $5)
    ORDER BY y.died, y.id LIMIT $6) x
  ORDER BY x.died, x.id LIMIT $6) p
JOIN redrive.dead d ON d.queue = $1 AND d.id = p.id
ORDER BY d.died, d.id

-- name: find_said
-- Dead letters whatever their texts. Parameters as find_texts.
SELECT :columns_dead, :parts
FROM (
  SELECT * FROM redrive.dead y
  WHERE y.queue = $1 AND (y.died, y.id) > ($2::timestamptz, $3)
    AND ($4::timestamptz IS NULL OR y.died >= $4) AND ($5::timestamptz IS NULL OR y.died <= $5)
  ORDER BY y.died, y.id LIMIT $6) d
WHERE $7::bigint[] IS NOT NULL
ORDER BY d.died, d.id

-- name: count_texts
-- "BETWEEN" has the planner go by the index of texts also where most of what is dead has the same.
--   $1 queue    $2 since    $3 until    $4 texts
SELECT coalesce(sum(x.n), 0)::bigint FROM unnest($4::bigint[]) AS t (text) CROSS JOIN LATERAL (
  SELECT count(*) AS n FROM redrive.dead y
  WHERE y.queue = $1 AND y.text BETWEEN t.text AND t.text AND ($2::timestamptz IS NULL OR y.died >= $2) AND ($3::timestamptz IS NULL OR y.died <= $3)) x

-- name: texts
-- The distinct texts of a queue that have a text, or all; and whether dead letters have others (hash 0).
--   $1 queue    $2 text    $3 all
SELECT t.hash, t.error, t.answer FROM redrive.text t
WHERE t.queue = $1 AND ($3::boolean OR position($2 IN t.error) > 0 OR position($2 IN t.answer) > 0)
UNION ALL
SELECT 0, '', '' WHERE EXISTS (SELECT FROM redrive.dead d WHERE d.queue = $1 AND d.text = 0)

-- name: number_of_texts
--   $1 queue    $2 most
SELECT count(*) FROM (SELECT FROM redrive.text t WHERE t.queue = $1 LIMIT $2) x

-- name: find_key
-- A page of the waiting messages of a key. Parameters as find_waiting.
SELECT :columns_message, :parts
FROM (SELECT * FROM redrive.message x WHERE x.queue = $1 AND x.key = $7 AND x.key <> '' AND x.id > $2 ORDER BY x.id LIMIT $3) m
WHERE ($5::smallint IS NULL OR $5 = CASE WHEN m.class >= 5 AND m.due > clock_timestamp() THEN 2 WHEN m.class IN (4, 6) THEN 3 ELSE 1 END)
  AND ($6::text IS NULL OR m.kind = $6)
  AND ($8::text IS NULL OR m.plan = $8) AND ($9::text IS NULL OR m.plan <> $9)
  AND ($10::timestamptz IS NULL OR m.published >= $10) AND ($11::timestamptz IS NULL OR m.published <= $11)
  AND ($12::text IS NULL OR position(convert_to($12, 'UTF8') IN m.body) > 0)
  AND ($18::text IS NULL OR position($18 IN coalesce(coalesce(m.last_failure, m.first_failure) ->> 'message', '')) > 0
    OR position($18 IN coalesce(coalesce(m.last_failure, m.first_failure) -> 'details' ->> 'http.response', '')) > 0)
  AND ($13::text IS NULL OR EXISTS (SELECT FROM json_array_elements(m.headers) h WHERE h ->> 0 = $13 AND ($14::text IS NULL OR h ->> 1 = $14)))
  AND (NOT $15::boolean OR m.original IS NOT NULL)
  AND (NOT $16::boolean OR m.lane = 1 AND (m.class < 4 OR m.class = 5 AND m.due <= clock_timestamp()))
  AND ($17::text IS NULL OR coalesce(m.last_failure, m.first_failure) ->> 'signature' = $17)
ORDER BY m.id
LIMIT $4

-- name: find_key_place
SELECT x.id, NULL::timestamptz FROM redrive.message x WHERE x.queue = $1 AND x.key = $4 AND x.key <> '' AND x.id > $2
ORDER BY x.id OFFSET $3 - 1 LIMIT 1

-- name: recall
--   $1 queues    $2 ids
SELECT i.ord, r.hash, r.outcome, r.reason, r.at
FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS i (queue, id, ord)
JOIN redrive.remembered r ON r.queue = i.queue AND r.id = i.id AND (r.until IS NULL OR r.until > clock_timestamp())

-- name: causes
-- Dead letters by cause, largest first, each with its newest as the example.
--   $1 queues (null: all)    $2 most looked at    $3 most causes    $4 reason    $5 signature    $6 kind    $7 key
--   $8 plan    $9 not plan   $10 since            $11 until         $12 body     $13 header     $14 value     $15 edited
WITH looked AS MATERIALIZED (
  SELECT d.queue, d.id, d.reason, d.signature, d.died, d.kind, d.key, d.plan,
    CASE WHEN $12::text IS NULL THEN true ELSE position(convert_to($12, 'UTF8') IN d.body) > 0 END
    AND CASE WHEN $13::text IS NULL THEN true ELSE EXISTS (SELECT FROM json_array_elements(d.headers) h
      WHERE h ->> 0 = $13 AND ($14::text IS NULL OR h ->> 1 = $14)) END AS matches
  FROM redrive.dead d
  WHERE ($1::text IS NULL OR d.queue = $1) AND ($4::smallint IS NULL OR d.reason = $4) AND ($5::text IS NULL OR d.signature = $5)
    AND ($10::timestamptz IS NULL OR d.died >= $10) AND ($11::timestamptz IS NULL OR d.died <= $11)
    AND (NOT $15::boolean OR d.original IS NOT NULL)
  LIMIT $2
),
grouped AS MATERIALIZED (
  SELECT queue, reason, signature, count(*) AS n, min(died) AS first, max(died) AS last,
    (array_agg(id ORDER BY died DESC, id DESC))[1] AS example
  FROM looked
  WHERE matches AND ($6::text IS NULL OR kind = $6) AND ($7::text IS NULL OR key = $7)
    AND ($8::text IS NULL OR plan = $8) AND ($9::text IS NULL OR plan <> $9)
  GROUP BY queue, reason, signature
)
SELECT g.queue, g.reason, g.signature, g.n, g.first, g.last, g.example, coalesce(d.last_failure, d.first_failure),
  (SELECT count(*) FROM looked), (SELECT count(*) FROM grouped)
FROM grouped g JOIN redrive.dead d ON d.queue = g.queue AND d.id = g.example
ORDER BY g.n DESC, g.queue, g.reason, g.signature
LIMIT $3

-- name: ledger
-- The ledger of a queue as it is written.
--   $1 queue
SELECT :totals
FROM (SELECT $1::text AS name) n LEFT JOIN redrive.queue q ON q.name = n.name
LEFT JOIN (SELECT d.queue AS name, :sums FROM redrive.delta d WHERE d.queue = $1 GROUP BY d.queue) d ON true

-- name: scan_waiting
--   $1 queue
SELECT m.lane, count(*), sum(m.size), sum(m.size::bigint - octet_length(m.body) - octet_length(m.key) - octet_length(m.kind) - octet_length(m.id))
    FILTER (WHERE m.headers IS NULL)
FROM redrive.message m WHERE m.queue = $1 GROUP BY m.lane

-- name: scan_dead
--   $1 queue
SELECT d.reason, count(*) FROM redrive.dead d WHERE d.queue = $1 GROUP BY d.reason

-- name: scan_sums
-- What messages and dead letters are compared with their checksums by.
--   $1 queue
SELECT m.id, m.kind, m.key, m.headers, m.body, m.original, m.crc, 0::smallint FROM redrive.message m WHERE m.queue = $1 AND m.crc IS NOT NULL
UNION ALL
SELECT d.id, d.kind, d.key, d.headers, d.body, d.original, d.crc, d.reason FROM redrive.dead d WHERE d.queue = $1 AND d.crc IS NOT NULL

-- name: scan_orphans
-- What belongs to nothing.
--   $1 queue
SELECT (SELECT count(*) FROM redrive.message m JOIN redrive.dead d ON d.queue = m.queue AND d.id = m.id WHERE m.queue = $1),
  (SELECT count(*) FROM redrive.message m WHERE m.queue = $1 AND m.class IN (4, 6) AND m.turn > 0 AND m.turn = least(
    (SELECT min(x.turn) FROM redrive.message x WHERE x.queue = m.queue AND x.key = m.key AND x.key <> '' AND x.turn > 0),
    (SELECT min(x.turn) FROM redrive.dead x WHERE x.queue = m.queue AND x.key = m.key AND x.key <> '' AND x.turn > 0))),
  (SELECT count(*) FROM redrive.message m WHERE m.queue = $1 AND m.chosen
    AND NOT EXISTS (SELECT FROM redrive.remembered r WHERE r.queue = m.queue AND r.id = m.id)),
  (SELECT count(*) FROM redrive.ordered_key k WHERE k.queue = $1 AND k.members <>
    (SELECT count(*) FROM redrive.message m WHERE m.queue = k.queue AND m.key = k.key AND m.key <> '' AND m.turn > 0)
    + (SELECT count(*) FROM redrive.dead d WHERE d.queue = k.queue AND d.key = k.key AND d.key <> '' AND d.turn > 0))
