-- Removes everything of version 1. The schema itself stays, as it may not be ours.

DROP VIEW redrive.dead_json, redrive.waiting_json;
DROP FUNCTION redrive.as_json(bytea);
DROP TABLE redrive.migration, redrive.inbox, redrive.record, redrive.remembered, redrive.ordered_key, redrive.cause_delta,
  redrive.bucket, redrive.cause, redrive.text, redrive.dead,
  redrive.message, redrive.delta, redrive.queue;
DROP SEQUENCE redrive.record_version, redrive.message_seq;
