-- Order by key. The caller has locked the keys (keys_of, or enter_key).

-- name: enter_key
-- Gives a message a place at the end of its key. The message is the head if it is the
-- only member.
--   $1 queue    $2 key
INSERT INTO redrive.ordered_key AS k (queue, key, last_turn, members) VALUES ($1, $2, 1, 1)
ON CONFLICT (queue, key) DO UPDATE SET last_turn = k.last_turn + 1, members = k.members + 1
RETURNING k.last_turn, k.members

-- name: requeue_turn
-- Sends a message that repeats to the end of its key.
--   $1 queue    $2 id    $3 key
WITH k AS (
  UPDATE redrive.ordered_key SET last_turn = last_turn + 1 WHERE queue = $1 AND key = $3 RETURNING last_turn
)
UPDATE redrive.message m SET turn = k.last_turn FROM k WHERE m.queue = $1 AND m.id = $2

-- name: leave_keys
-- Takes messages out of the counts of their keys; a key without members goes.
--   $1 queues    $2 keys    $3 how many of each leave
WITH item AS MATERIALIZED (
  SELECT * FROM unnest($1::text[], $2::text[], $3::bigint[]) AS i (queue, key, n)
),
emptied AS (
  DELETE FROM redrive.ordered_key k USING item i WHERE k.queue = i.queue AND k.key = i.key AND k.members <= i.n
)
UPDATE redrive.ordered_key k SET members = k.members - i.n
FROM item i WHERE k.queue = i.queue AND k.key = i.key AND k.members > i.n

-- name: free_heads
-- Makes the heads of keys claimable if they are blocked. A head that is dead stays so.
-- It is due from now on, not from before it was blocked: claims need not look back. A lease
-- (class 6) goes on.
--   $1 queues    $2 keys
WITH head AS MATERIALIZED (
  SELECT i.queue, i.key, least(
    (SELECT min(m.turn) FROM redrive.message m WHERE m.queue = i.queue AND m.key = i.key AND m.key <> '' AND m.turn > 0),
    (SELECT min(d.turn) FROM redrive.dead d WHERE d.queue = i.queue AND d.key = i.key AND d.key <> '' AND d.turn > 0)) AS turn
  FROM unnest($1::text[], $2::text[]) AS i (queue, key)
)
UPDATE redrive.message m
SET class = CASE WHEN m.class = 6 THEN 5 WHEN m.suspect THEN 3 ELSE m.lane END,
    due = CASE WHEN m.delayed OR m.class = 6 THEN greatest(m.due, clock_timestamp()) ELSE clock_timestamp() END
FROM head h
WHERE m.queue = h.queue AND m.key = h.key AND m.key <> '' AND m.turn = h.turn AND m.class + 0 IN (4, 6)
