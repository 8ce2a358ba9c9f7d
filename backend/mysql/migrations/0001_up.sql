-- Redrive's tables in MySQL and MariaDB, version 1. "redrive_" is the tables' prefix and
-- is replaced by the one that was asked for. Each statement may be repeated: a server
-- commits each by itself, so a migration that was cut off is begun anew.
--
-- What names something is bytes (VARBINARY), so that it is compared as it is written,
-- whatever the database's character set and collation are. Times are microseconds since
-- 1970 in UTC, so that no session's time zone, and no driver's, has a say in them.

-- What the store must know about a queue. remember: how long chosen ids are remembered.
CREATE TABLE IF NOT EXISTS redrive_queue (
  name         VARBINARY(64) NOT NULL PRIMARY KEY,
  order_by_key TINYINT       NOT NULL,
  dead_release TINYINT       NOT NULL,
  remember     BIGINT        NOT NULL
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC;

-- The ledger of a queue without those of delta.
CREATE TABLE IF NOT EXISTS redrive_ledger (
  queue            VARBINARY(64) NOT NULL PRIMARY KEY,
  fresh            BIGINT NOT NULL DEFAULT 0,
  retry            BIGINT NOT NULL DEFAULT 0,
  redrive          BIGINT NOT NULL DEFAULT 0,
  bytes            BIGINT NOT NULL DEFAULT 0,
  published        BIGINT NOT NULL DEFAULT 0,
  parked           BIGINT NOT NULL DEFAULT 0,
  imported         BIGINT NOT NULL DEFAULT 0,
  moved_in         BIGINT NOT NULL DEFAULT 0,
  repeated         BIGINT NOT NULL DEFAULT 0,
  done             BIGINT NOT NULL DEFAULT 0,
  dropped          BIGINT NOT NULL DEFAULT 0,
  archived         BIGINT NOT NULL DEFAULT 0,
  moved_out        BIGINT NOT NULL DEFAULT 0,
  dead_exhausted   BIGINT NOT NULL DEFAULT 0,
  dead_permanent   BIGINT NOT NULL DEFAULT 0,
  dead_crashed     BIGINT NOT NULL DEFAULT 0,
  dead_expired     BIGINT NOT NULL DEFAULT 0,
  dead_undecodable BIGINT NOT NULL DEFAULT 0,
  dead_oversize    BIGINT NOT NULL DEFAULT 0,
  dead_unroutable  BIGINT NOT NULL DEFAULT 0,
  dead_rejected    BIGINT NOT NULL DEFAULT 0,
  dead_loop        BIGINT NOT NULL DEFAULT 0,
  dead_uncertain   BIGINT NOT NULL DEFAULT 0,
  dead_disabled    BIGINT NOT NULL DEFAULT 0,
  dead_manual      BIGINT NOT NULL DEFAULT 0,
  dead_corrupt     BIGINT NOT NULL DEFAULT 0
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC;

-- Differences to the ledger: a row a batch and queue, written with the messages and
-- folded into redrive_ledger in the background. What a batch does not touch is null.
CREATE TABLE IF NOT EXISTS redrive_delta (
  id               BIGINT        NOT NULL AUTO_INCREMENT PRIMARY KEY,
  queue            VARBINARY(64) NOT NULL,
  fresh            BIGINT NULL,
  retry            BIGINT NULL,
  redrive          BIGINT NULL,
  bytes            BIGINT NULL,
  published        BIGINT NULL,
  parked           BIGINT NULL,
  imported         BIGINT NULL,
  moved_in         BIGINT NULL,
  repeated         BIGINT NULL,
  done             BIGINT NULL,
  dropped          BIGINT NULL,
  archived         BIGINT NULL,
  moved_out        BIGINT NULL,
  dead_exhausted   BIGINT NULL,
  dead_permanent   BIGINT NULL,
  dead_crashed     BIGINT NULL,
  dead_expired     BIGINT NULL,
  dead_undecodable BIGINT NULL,
  dead_oversize    BIGINT NULL,
  dead_unroutable  BIGINT NULL,
  dead_rejected    BIGINT NULL,
  dead_loop        BIGINT NULL,
  dead_uncertain   BIGINT NULL,
  dead_disabled    BIGINT NULL,
  dead_manual      BIGINT NULL,
  dead_corrupt     BIGINT NULL
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC;

-- Waiting messages.
-- class: 0-2 lane, 3 suspect, 4 blocked behind the head of its key, 5 leased, 6 leased
--   though blocked (claimed as expired). A lease that ran out needs no change of the
--   row: class 5 with a due in the past is a suspect, class 6 is blocked.
-- due: when it may be claimed; of a leased one, when its lease ends.
-- token, nonce: of the last claim. The nonce is random, so that a claim that was lost
--   in a crash of the server has no twin.
-- isolated: the last claim was of this message only, so that a lease that runs out counts
--   as a crash.
-- turn: place in the order of its key; 0 without order.
-- earlier: failures of earlier generations.
-- chosen: the id is remembered.
-- original: the message before it was edited, as JSON.
-- is_delayed: due was asked for, by a delay, a retry or a schedule.
-- crc: checksum of what was published (driver.Checksum); null: unchecked.
CREATE TABLE IF NOT EXISTS redrive_message (
  seq           BIGINT         NOT NULL AUTO_INCREMENT PRIMARY KEY,
  due           BIGINT         NOT NULL,
  published     BIGINT         NOT NULL,
  expires       BIGINT         NULL,
  token         BIGINT         NOT NULL DEFAULT 0,
  nonce         BIGINT         NOT NULL DEFAULT 0,
  turn          BIGINT         NOT NULL DEFAULT 0,
  attempts      INT            NOT NULL DEFAULT 0,
  failures      INT            NOT NULL DEFAULT 0,
  earlier       INT            NOT NULL DEFAULT 0,
  crashes       INT            NOT NULL DEFAULT 0,
  generation    INT            NOT NULL DEFAULT 0,
  redrives      INT            NOT NULL DEFAULT 0,
  size          INT            NOT NULL,
  crc           INT UNSIGNED   NULL,
  class         TINYINT        NOT NULL DEFAULT 0,
  lane          TINYINT        NOT NULL DEFAULT 0,
  suspect       TINYINT        NOT NULL DEFAULT 0,
  chosen        TINYINT        NOT NULL DEFAULT 0,
  isolated         TINYINT        NOT NULL DEFAULT 0,
  is_delayed    TINYINT        NOT NULL DEFAULT 0,
  queue         VARBINARY(64)  NOT NULL,
  id            VARBINARY(128) NOT NULL,
  kind          VARBINARY(512) NOT NULL DEFAULT '',
  msg_key       VARBINARY(512) NOT NULL DEFAULT '',
  instance      VARBINARY(255) NOT NULL DEFAULT '',
  reply_to      VARBINARY(512) NOT NULL DEFAULT '',
  plan          VARBINARY(512) NOT NULL DEFAULT '',
  origin        BLOB           NULL,
  edited_from   VARBINARY(512) NOT NULL DEFAULT '',
  headers       LONGBLOB       NULL,
  first_failure LONGBLOB       NULL,
  last_failure  LONGBLOB       NULL,
  original      LONGBLOB       NULL,
  body          LONGBLOB       NOT NULL,
  UNIQUE KEY message_id (queue, id),
  KEY message_due (queue, class, due, seq),
  KEY message_expires (queue, expires),
  KEY message_key (queue, msg_key, turn)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC;

-- Dead letters. due: when a processor of dead letters may claim it, or when its lease
-- ends if it is leased. seq is the number it had as a message. edited: it has an original.
CREATE TABLE IF NOT EXISTS redrive_dead (
  queue         VARBINARY(64)  NOT NULL,
  id            VARBINARY(128) NOT NULL,
  seq           BIGINT         NOT NULL,
  died          BIGINT         NOT NULL,
  due           BIGINT         NOT NULL,
  published     BIGINT         NOT NULL,
  expires       BIGINT         NULL,
  token         BIGINT         NOT NULL,
  nonce         BIGINT         NOT NULL,
  turn          BIGINT         NOT NULL,
  attempts      INT            NOT NULL,
  failures      INT            NOT NULL,
  earlier       INT            NOT NULL,
  crashes       INT            NOT NULL,
  generation    INT            NOT NULL,
  redrives      INT            NOT NULL,
  size          INT            NOT NULL,
  crc           INT UNSIGNED   NULL,
  reason        TINYINT        NOT NULL,
  lane          TINYINT        NOT NULL,
  leased        TINYINT        NOT NULL DEFAULT 0,
  chosen        TINYINT        NOT NULL,
  edited        TINYINT        NOT NULL DEFAULT 0,
  signature     VARBINARY(512) NOT NULL,
  kind          VARBINARY(512) NOT NULL,
  msg_key       VARBINARY(512) NOT NULL,
  instance      VARBINARY(255) NOT NULL DEFAULT '',
  reply_to      VARBINARY(512) NOT NULL,
  plan          VARBINARY(512) NOT NULL,
  origin        BLOB           NULL,
  edited_from   VARBINARY(512) NOT NULL,
  headers       LONGBLOB       NULL,
  first_failure LONGBLOB       NULL,
  last_failure  LONGBLOB       NULL,
  original      LONGBLOB       NULL,
  body          LONGBLOB       NOT NULL,
  PRIMARY KEY (queue, id),
  KEY dead_died (queue, died, id),
  KEY dead_due (queue, due),
  KEY dead_cause (queue, reason, signature, died, id),
  KEY dead_plan (queue, plan, died, id),
  KEY dead_edited (queue, edited, died, id),
  KEY dead_key (queue, msg_key, turn)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC;

-- How many dead letters each cause has, without those of cause_delta. series: its deaths
-- have buckets of their own.
CREATE TABLE IF NOT EXISTS redrive_cause (
  queue     VARBINARY(64)  NOT NULL,
  reason    TINYINT        NOT NULL,
  signature VARBINARY(512) NOT NULL,
  dead      BIGINT         NOT NULL,
  series    TINYINT        NOT NULL,
  PRIMARY KEY (queue, reason, signature),
  KEY cause_series (queue, series)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC;

-- How often messages died of a cause, by time: width is in seconds, 60, 3,600 or 86,400.
CREATE TABLE IF NOT EXISTS redrive_bucket (
  queue     VARBINARY(64)  NOT NULL,
  reason    TINYINT        NOT NULL,
  signature VARBINARY(512) NOT NULL,
  width     INT            NOT NULL,
  start     BIGINT         NOT NULL,
  deaths    BIGINT         NOT NULL,
  PRIMARY KEY (queue, reason, signature, width, start),
  KEY bucket_start (width, start)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC;

-- Differences to both: a row a batch, cause and bucket, written with the messages and folded
-- in the background. width is 0 where nothing died, or too long ago.
CREATE TABLE IF NOT EXISTS redrive_cause_delta (
  id        BIGINT         NOT NULL AUTO_INCREMENT PRIMARY KEY,
  queue     VARBINARY(64)  NOT NULL,
  reason    TINYINT        NOT NULL,
  signature VARBINARY(512) NOT NULL,
  width     INT            NOT NULL,
  start     BIGINT         NOT NULL,
  dead      BIGINT         NOT NULL,
  deaths    BIGINT         NOT NULL
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC;

-- Keys of queues with order by key. Whoever adds to a key or ends its head locks the
-- key's row first. members: messages that take part, waiting or dead.
CREATE TABLE IF NOT EXISTS redrive_ordered_key (
  queue     VARBINARY(64)  NOT NULL,
  msg_key   VARBINARY(512) NOT NULL,
  last_turn BIGINT         NOT NULL,
  members   BIGINT         NOT NULL,
  PRIMARY KEY (queue, msg_key)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC;

-- Ids that callers chose. keep: how long it is remembered beyond the message's life.
-- until: when it may be forgotten, once the message ended. nonce: of the publish that
-- took the id.
CREATE TABLE IF NOT EXISTS redrive_remembered (
  queue      VARBINARY(64)  NOT NULL,
  id         VARBINARY(128) NOT NULL,
  hash       BIGINT         NOT NULL,
  nonce      BIGINT         NOT NULL,
  changed    BIGINT         NOT NULL,
  keep       BIGINT         NOT NULL,
  until      BIGINT         NULL,
  outcome    TINYINT        NOT NULL,
  reason     TINYINT        NOT NULL,
  PRIMARY KEY (queue, id),
  KEY remembered_until (until)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC;

-- Small values shared by all processes. Versions come from one counter, so that they
-- rise also across a deletion.
CREATE TABLE IF NOT EXISTS redrive_record (
  space   VARBINARY(255)  NOT NULL,
  name    VARBINARY(1024) NOT NULL,
  version BIGINT          NOT NULL,
  expires BIGINT          NULL,
  value   LONGBLOB        NOT NULL,
  PRIMARY KEY (space, name),
  KEY record_expires (expires)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC;

-- The counter of versions: numbers are taken by inserting, and the rows go again.
CREATE TABLE IF NOT EXISTS redrive_version (
  version BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC;

-- What users' transactions have done once; see Once.
CREATE TABLE IF NOT EXISTS redrive_inbox (
  id VARBINARY(512) NOT NULL PRIMARY KEY,
  at BIGINT         NOT NULL,
  KEY inbox_at (at)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC;

-- Bodies that are JSON, for queries over what waits and what is dead. What is no JSON
-- is null.
CREATE OR REPLACE SQL SECURITY INVOKER VIEW redrive_waiting_json AS
  SELECT m.queue, m.id, m.kind, m.msg_key, m.lane, TIMESTAMPADD(MICROSECOND, m.due, '1970-01-01') AS due,
    TIMESTAMPADD(MICROSECOND, m.published, '1970-01-01') AS published, m.attempts, m.failures,
    CASE WHEN CONVERT(CONVERT(m.body USING utf8mb4) USING binary) = m.body AND JSON_VALID(CONVERT(m.body USING utf8mb4))
      THEN CONVERT(m.body USING utf8mb4) END AS body
  FROM redrive_message m;

CREATE OR REPLACE SQL SECURITY INVOKER VIEW redrive_dead_json AS
  SELECT d.queue, d.id, d.kind, d.msg_key, TIMESTAMPADD(MICROSECOND, d.died, '1970-01-01') AS died, d.reason, d.signature, d.attempts,
    CASE WHEN CONVERT(CONVERT(d.body USING utf8mb4) USING binary) = d.body AND JSON_VALID(CONVERT(d.body USING utf8mb4))
      THEN CONVERT(d.body USING utf8mb4) END AS body,
    JSON_UNQUOTE(JSON_EXTRACT(CONVERT(COALESCE(d.last_failure, d.first_failure) USING utf8mb4), '$.message')) AS error
  FROM redrive_dead d;

-- layout: of version 1, which is changed in place until it is released.
CREATE TABLE IF NOT EXISTS redrive_migration (
  version INT    NOT NULL PRIMARY KEY,
  layout  INT    NOT NULL DEFAULT 6,
  at      BIGINT NOT NULL
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC;

INSERT IGNORE INTO redrive_migration (version, at) VALUES (1, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)));
