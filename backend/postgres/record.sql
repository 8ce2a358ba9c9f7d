-- Records. $1 space, $2 key, $3 value, $4 microseconds until it expires (-1: never), $5 version.

-- name: record_create
-- Only if there is none, or an expired one.
INSERT INTO redrive.record AS r (space, key, value, version, expires)
VALUES ($1, $2, $3, nextval('redrive.record_version'), CASE WHEN $4::bigint >= 0 THEN clock_timestamp() + $4::bigint * interval '1 microsecond' END)
ON CONFLICT (space, key) DO UPDATE SET value = excluded.value, version = nextval('redrive.record_version'), expires = excluded.expires
  WHERE r.expires <= clock_timestamp()

-- name: record_set
INSERT INTO redrive.record AS r (space, key, value, version, expires)
VALUES ($1, $2, $3, nextval('redrive.record_version'), CASE WHEN $4::bigint >= 0 THEN clock_timestamp() + $4::bigint * interval '1 microsecond' END)
ON CONFLICT (space, key) DO UPDATE SET value = excluded.value, version = nextval('redrive.record_version'), expires = excluded.expires

-- name: record_update
UPDATE redrive.record
SET value = $3, version = nextval('redrive.record_version'),
  expires = CASE WHEN $4::bigint >= 0 THEN clock_timestamp() + $4::bigint * interval '1 microsecond' END
WHERE space = $1 AND key = $2 AND version = $5 AND (expires IS NULL OR expires > clock_timestamp())

-- name: record_delete
--   $3 version, -1: any
DELETE FROM redrive.record
WHERE space = $1 AND key = $2 AND ($3::bigint = -1 OR version = $3::bigint AND (expires IS NULL OR expires > clock_timestamp()))

-- name: record_absent
SELECT 1 FROM redrive.record WHERE space = $1 AND key = $2 AND (expires IS NULL OR expires > clock_timestamp())

-- name: record_get
SELECT key, value, version, expires FROM redrive.record
WHERE space = $1 AND key = $2 AND (expires IS NULL OR expires > clock_timestamp())

-- name: record_list
--   $1 space    $2 key to go on after    $3 most records
SELECT key, value, version, expires FROM redrive.record
WHERE space = $1 AND key > $2 AND (expires IS NULL OR expires > clock_timestamp())
ORDER BY key
LIMIT $3
