-- Order by key. Whoever changes the line of a key has locked the key.

-- name: lock_keys
--   queue, keys
SELECT msg_key FROM redrive_ordered_key FORCE INDEX (PRIMARY) WHERE queue = ? AND msg_key IN (:ids) ORDER BY msg_key FOR UPDATE

-- name: keys_of
-- The keys that messages stand in line in.
--   queue, ids, twice
SELECT queue, msg_key FROM redrive_message FORCE INDEX (message_id) WHERE queue = ? AND id IN (:ids) AND turn > 0
UNION ALL SELECT queue, msg_key FROM redrive_dead FORCE INDEX (PRIMARY) WHERE queue = ? AND id IN (:ids) AND turn > 0

-- name: enter_key
-- Lines up messages at the end of a key.
--   queue, key, how many, how many
INSERT INTO redrive_ordered_key (queue, msg_key, last_turn, members) VALUES (?, ?, ?, ?)
ON DUPLICATE KEY UPDATE last_turn = last_turn + VALUES(last_turn), members = members + VALUES(members)

-- name: entered_key
--   queue, key
SELECT last_turn, members FROM redrive_ordered_key WHERE queue = ? AND msg_key = ? FOR UPDATE

-- name: requeue_key
-- Makes room at the end of a key for one that repeats.
--   queue, key
UPDATE redrive_ordered_key SET last_turn = last_turn + 1 WHERE queue = ? AND msg_key = ?

-- name: requeue_turn
-- Sends a message that repeats there.
--   queue, key, queue, id
UPDATE redrive_message FORCE INDEX (message_id) SET turn = (SELECT last_turn FROM redrive_ordered_key WHERE queue = ? AND msg_key = ?) WHERE queue = ? AND id = ?

-- name: leave_key
-- Takes messages out of the members of a key.
--   how many, queue, key
UPDATE redrive_ordered_key SET members = members - ? WHERE queue = ? AND msg_key = ?

-- name: drop_key
-- A key without members goes.
--   queue, key
DELETE FROM redrive_ordered_key WHERE queue = ? AND msg_key = ? AND members <= 0

-- name: head_waiting
--   queue, key
SELECT turn FROM redrive_message FORCE INDEX (message_key) WHERE queue = ? AND msg_key = ? AND turn > 0 ORDER BY turn LIMIT 1 FOR UPDATE

-- name: head_dead
--   queue, key
SELECT turn FROM redrive_dead FORCE INDEX (dead_key) WHERE queue = ? AND msg_key = ? AND turn > 0 ORDER BY turn LIMIT 1 FOR UPDATE

-- name: free_head
-- Makes the head of a key claimable if it is blocked. It is due from now on, not from
-- before it was blocked: claims need not look back. A lease (class 6) goes on.
--   queue, key, turn
UPDATE redrive_message FORCE INDEX (message_key) SET due = IF(is_delayed OR class = 6, GREATEST(due, :now), :now), class = IF(class = 6, 5, IF(suspect, 3, lane)) WHERE queue = ? AND msg_key = ? AND turn = ? AND class IN (4, 6)
