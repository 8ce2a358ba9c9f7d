-- Back to version 1.

DROP FUNCTION redrive.publish(text, text, bytea, text, text, json, interval, timestamptz, timestamptz, text, boolean), redrive.publish(text, text, text, text, text, json, interval, timestamptz, timestamptz, text, boolean), redrive.crc32c(bigint, bytea);
DELETE FROM redrive.migration WHERE version = 2;
