-- Records.

-- name: record_lock
--   space, name
SELECT version, expires IS NULL OR expires > :now FROM redrive_record WHERE space = ? AND name = ? FOR UPDATE

-- name: next_version
INSERT INTO redrive_version () VALUES ()

-- name: drop_version
DELETE FROM redrive_version WHERE version = LAST_INSERT_ID()

-- name: record_insert
--   space, name, value, expires in (-1: never), expires in
INSERT INTO redrive_record (space, name, value, version, expires) VALUES (?, ?, ?, LAST_INSERT_ID(), IF(? >= 0, :now + ?, NULL))

-- name: record_update
--   value, expires in (-1: never), expires in, space, name
UPDATE redrive_record SET value = ?, version = LAST_INSERT_ID(), expires = IF(? >= 0, :now + ?, NULL) WHERE space = ? AND name = ?

-- name: record_delete
--   space, name
DELETE FROM redrive_record WHERE space = ? AND name = ?

-- name: record_get
--   space, name
SELECT name, value, version, expires FROM redrive_record WHERE space = ? AND name = ? AND (expires IS NULL OR expires > :now)

-- name: record_list
--   space, name to go on after, most
SELECT name, value, version, expires FROM redrive_record
WHERE space = ? AND name > ? AND (expires IS NULL OR expires > :now) ORDER BY name LIMIT ?
