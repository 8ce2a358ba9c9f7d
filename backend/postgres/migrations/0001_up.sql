-- Redrive's tables in PostgreSQL, version 1. "redrive." stands for the schema's name
-- and is replaced by the one that was asked for. Text that names something is sorted
-- by its bytes (COLLATE "C"), whatever the database's own collation is.

-- What the store must know about a queue, and its ledger without those of delta.
CREATE TABLE redrive.queue (
  name         text COLLATE "C" PRIMARY KEY,
  order_by_key boolean  NOT NULL DEFAULT false,
  dead_release boolean  NOT NULL DEFAULT false,
  remember     interval NOT NULL DEFAULT interval '24 hours',
  fresh        bigint   NOT NULL DEFAULT 0,
  retry        bigint   NOT NULL DEFAULT 0,
  redrive      bigint   NOT NULL DEFAULT 0,
  bytes        bigint   NOT NULL DEFAULT 0,
  published    bigint   NOT NULL DEFAULT 0,
  parked       bigint   NOT NULL DEFAULT 0,
  imported     bigint   NOT NULL DEFAULT 0,
  moved_in     bigint   NOT NULL DEFAULT 0,
  repeated     bigint   NOT NULL DEFAULT 0,
  done         bigint   NOT NULL DEFAULT 0,
  dropped      bigint   NOT NULL DEFAULT 0,
  archived     bigint   NOT NULL DEFAULT 0,
  moved_out    bigint   NOT NULL DEFAULT 0,
  exhausted    bigint   NOT NULL DEFAULT 0,
  permanent    bigint   NOT NULL DEFAULT 0,
  crashed      bigint   NOT NULL DEFAULT 0,
  expired      bigint   NOT NULL DEFAULT 0,
  undecodable  bigint   NOT NULL DEFAULT 0,
  oversize     bigint   NOT NULL DEFAULT 0,
  unroutable   bigint   NOT NULL DEFAULT 0,
  rejected     bigint   NOT NULL DEFAULT 0,
  loop         bigint   NOT NULL DEFAULT 0,
  uncertain    bigint   NOT NULL DEFAULT 0,
  disabled     bigint   NOT NULL DEFAULT 0,
  manual       bigint   NOT NULL DEFAULT 0,
  corrupt      bigint   NOT NULL DEFAULT 0
) WITH (fillfactor = 50);

-- Differences to the ledger: a row a batch and queue, written with the messages and
-- folded into queue in the background. What a batch does not touch is null, which
-- takes no room.
CREATE TABLE redrive.delta (
  queue       text COLLATE "C" NOT NULL,
  fresh       bigint,
  retry       bigint,
  redrive     bigint,
  bytes       bigint,
  published   bigint,
  parked      bigint,
  imported    bigint,
  moved_in    bigint,
  repeated    bigint,
  done        bigint,
  dropped     bigint,
  archived    bigint,
  moved_out   bigint,
  exhausted   bigint,
  permanent   bigint,
  crashed     bigint,
  expired     bigint,
  undecodable bigint,
  oversize    bigint,
  unroutable  bigint,
  rejected    bigint,
  loop        bigint,
  uncertain   bigint,
  disabled    bigint,
  manual      bigint,
  corrupt     bigint
) WITH (autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_cost_delay = 0);

CREATE SEQUENCE redrive.message_seq;

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
-- delayed: due was asked for, by a delay, a retry or a schedule.
-- crc: checksum of what was published (driver.Checksum); null: unchecked.
CREATE TABLE redrive.message (
  seq           bigint      NOT NULL DEFAULT nextval('redrive.message_seq'),
  due           timestamptz NOT NULL,
  published     timestamptz NOT NULL,
  expires       timestamptz,
  token         bigint      NOT NULL DEFAULT 0,
  nonce         bigint      NOT NULL DEFAULT 0,
  turn          bigint      NOT NULL DEFAULT 0,
  attempts      integer     NOT NULL DEFAULT 0,
  failures      integer     NOT NULL DEFAULT 0,
  earlier       integer     NOT NULL DEFAULT 0,
  crashes       integer     NOT NULL DEFAULT 0,
  generation    integer     NOT NULL DEFAULT 0,
  redrives      integer     NOT NULL DEFAULT 0,
  size          integer     NOT NULL,
  crc           integer,
  class         smallint    NOT NULL DEFAULT 0,
  lane          smallint    NOT NULL DEFAULT 0,
  suspect       boolean     NOT NULL DEFAULT false,
  chosen        boolean     NOT NULL DEFAULT false,
  isolated         boolean     NOT NULL DEFAULT false,
  delayed       boolean     NOT NULL DEFAULT false,
  queue         text COLLATE "C" NOT NULL,
  id            text COLLATE "C" NOT NULL,
  kind          text COLLATE "C" NOT NULL DEFAULT '',
  key           text COLLATE "C" NOT NULL DEFAULT '',
  instance      text NOT NULL DEFAULT '',
  reply_to      text NOT NULL DEFAULT '',
  plan          text COLLATE "C" NOT NULL DEFAULT '',
  origin        text NOT NULL DEFAULT '',
  edited_from   text NOT NULL DEFAULT '',
  headers       json,
  first_failure json,
  last_failure  json,
  original      json,
  body          bytea NOT NULL,
  PRIMARY KEY (queue, id)
) WITH (fillfactor = 80, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_scale_factor = 0.01,
  autovacuum_vacuum_insert_scale_factor = 0.2, autovacuum_analyze_threshold = 5000, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX message_due ON redrive.message (queue, class, due, seq);
CREATE INDEX message_expires ON redrive.message (queue, expires) WHERE expires IS NOT NULL;
CREATE INDEX message_key ON redrive.message (queue, key, turn, seq) WHERE key <> '';

-- Dead letters. due: when a processor of dead letters may claim it, or when its lease
-- ends if it is leased.
-- text: the hash in table text of what its newest failure says; null: it has none, 0: it is not there.
CREATE TABLE redrive.dead (
  seq           bigint      NOT NULL,
  died          timestamptz NOT NULL,
  due           timestamptz NOT NULL,
  published     timestamptz NOT NULL,
  expires       timestamptz,
  token         bigint      NOT NULL,
  nonce         bigint      NOT NULL,
  turn          bigint      NOT NULL,
  attempts      integer     NOT NULL,
  failures      integer     NOT NULL,
  earlier       integer     NOT NULL,
  crashes       integer     NOT NULL,
  generation    integer     NOT NULL,
  redrives      integer     NOT NULL,
  size          integer     NOT NULL,
  crc           integer,
  reason        smallint    NOT NULL,
  lane          smallint    NOT NULL,
  leased        boolean     NOT NULL DEFAULT false,
  chosen        boolean     NOT NULL,
  queue         text COLLATE "C" NOT NULL,
  id            text COLLATE "C" NOT NULL,
  signature     text COLLATE "C" NOT NULL,
  kind          text COLLATE "C" NOT NULL,
  key           text COLLATE "C" NOT NULL,
  instance      text NOT NULL DEFAULT '',
  reply_to      text NOT NULL,
  plan          text COLLATE "C" NOT NULL,
  origin        text NOT NULL,
  edited_from   text NOT NULL,
  headers       json,
  first_failure json,
  last_failure  json,
  original      json,
  text          bigint,
  body          bytea NOT NULL,
  PRIMARY KEY (queue, id)
) WITH (autovacuum_vacuum_scale_factor = 0.05);
CREATE INDEX dead_died ON redrive.dead (queue, died, id);
CREATE INDEX dead_due ON redrive.dead (queue, due);
CREATE INDEX dead_cause ON redrive.dead (queue, reason, signature, died, id);
CREATE INDEX dead_plan ON redrive.dead (queue, plan, died, id) WHERE plan <> '';
CREATE INDEX dead_edited ON redrive.dead (queue, died, id) WHERE original IS NOT NULL;
CREATE INDEX dead_key ON redrive.dead (queue, key, turn, seq) WHERE key <> '';
CREATE INDEX dead_text ON redrive.dead (queue, text, died, id);

-- What failures of dead letters say, once for all of a queue that say the same: the error, and
-- the target's answer. What a mask named when it died is not here. used: when a process last
-- met it; a row that no dead letter needs goes a day after that.
CREATE TABLE redrive.text (
  hash   bigint      NOT NULL,
  used   timestamptz NOT NULL DEFAULT clock_timestamp(),
  queue  text COLLATE "C" NOT NULL,
  error  text COLLATE "C" NOT NULL,
  answer text COLLATE "C" NOT NULL,
  PRIMARY KEY (queue, hash)
);

-- How many dead letters each cause has, without those of cause_delta. series: its deaths
-- have buckets of their own.
CREATE TABLE redrive.cause (
  dead      bigint   NOT NULL,
  reason    smallint NOT NULL,
  series    boolean  NOT NULL,
  queue     text COLLATE "C" NOT NULL,
  signature text COLLATE "C" NOT NULL,
  PRIMARY KEY (queue, reason, signature)
) WITH (fillfactor = 50, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_scale_factor = 0.05);
CREATE INDEX cause_series ON redrive.cause (queue) WHERE series;

-- How often messages died of a cause, by time: width is in seconds, 60, 3,600 or 86,400.
CREATE TABLE redrive.bucket (
  start     timestamptz NOT NULL,
  deaths    bigint      NOT NULL,
  width     integer     NOT NULL,
  reason    smallint    NOT NULL,
  queue     text COLLATE "C" NOT NULL,
  signature text COLLATE "C" NOT NULL,
  PRIMARY KEY (queue, reason, signature, width, start)
) WITH (fillfactor = 70, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_scale_factor = 0.05);
CREATE INDEX bucket_start ON redrive.bucket (width, start);

-- Differences to both: a row a batch, cause and bucket, written with the messages and folded
-- in the background. width is 0 where nothing died, or too long ago.
CREATE TABLE redrive.cause_delta (
  start     timestamptz NOT NULL,
  dead      bigint      NOT NULL,
  deaths    bigint      NOT NULL,
  width     integer     NOT NULL,
  reason    smallint    NOT NULL,
  queue     text COLLATE "C" NOT NULL,
  signature text COLLATE "C" NOT NULL
) WITH (autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_cost_delay = 0);

-- Keys of queues with order by key. Whoever adds to a key or ends its head locks the
-- key's row first. members: messages that take part, waiting or dead.
CREATE TABLE redrive.ordered_key (
  queue     text COLLATE "C" NOT NULL,
  key       text COLLATE "C" NOT NULL,
  last_turn bigint NOT NULL,
  members   bigint NOT NULL,
  PRIMARY KEY (queue, key)
) WITH (fillfactor = 70, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_scale_factor = 0.05);

-- Ids that callers chose. keep: how long it is remembered beyond the message's life.
-- until: when it may be forgotten, once the message ended.
CREATE TABLE redrive.remembered (
  hash    bigint      NOT NULL,
  at      timestamptz NOT NULL,
  until   timestamptz,
  keep    interval    NOT NULL,
  outcome smallint    NOT NULL,
  reason  smallint    NOT NULL,
  queue   text COLLATE "C" NOT NULL,
  id      text COLLATE "C" NOT NULL,
  PRIMARY KEY (queue, id)
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX remembered_until ON redrive.remembered (until) WHERE until IS NOT NULL;

-- Small values shared by all processes. Versions come from one sequence, so that they
-- rise also across a deletion.
CREATE SEQUENCE redrive.record_version;
CREATE TABLE redrive.record (
  version bigint NOT NULL,
  expires timestamptz,
  space   text COLLATE "C" NOT NULL,
  key     text COLLATE "C" NOT NULL,
  value   bytea NOT NULL,
  PRIMARY KEY (space, key)
) WITH (fillfactor = 50, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0.1);
CREATE INDEX record_expires ON redrive.record (expires) WHERE expires IS NOT NULL;

-- What users' transactions have done once; see Once.
CREATE TABLE redrive.inbox (
  at timestamptz NOT NULL,
  id text COLLATE "C" PRIMARY KEY
);
CREATE INDEX inbox_at ON redrive.inbox (at);

-- Bodies that are JSON, for queries over what waits and what is dead. What is no JSON,
-- or holds a NUL that jsonb cannot, is null.
CREATE FUNCTION redrive.as_json(body bytea) RETURNS jsonb LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
BEGIN
  RETURN convert_from(body, 'UTF8')::jsonb;
EXCEPTION WHEN OTHERS THEN
  RETURN NULL;
END $$;

CREATE VIEW redrive.waiting_json AS
  SELECT queue, id, kind, key, lane, due, published, attempts, failures, redrive.as_json(body) AS body FROM redrive.message;
CREATE VIEW redrive.dead_json AS
  SELECT queue, id, kind, key, died, reason, signature, attempts, redrive.as_json(body) AS body,
    coalesce(last_failure, first_failure) ->> 'message' AS error FROM redrive.dead;

-- layout: of version 1, which is changed in place until it is released.
CREATE TABLE redrive.migration (
  version integer     PRIMARY KEY,
  layout  integer     NOT NULL DEFAULT 6,
  at      timestamptz NOT NULL DEFAULT clock_timestamp()
);
INSERT INTO redrive.migration (version) VALUES (1);
