-- Redrive's embedded store, schema version 4. Times are nanoseconds since 1970. No release
-- wrote versions 1 to 3. Later versions are numbered migrations beside this file.

-- One row a queue: what the store must know about it, what it holds and its ledger.
-- The writer keeps these numbers in memory and writes the row in the transaction
-- that moves the messages.
CREATE TABLE queue (
  queue        INTEGER PRIMARY KEY,
  name         TEXT    NOT NULL UNIQUE,
  order_by_key INTEGER NOT NULL DEFAULT 0,
  dead_release INTEGER NOT NULL DEFAULT 0,
  remember     INTEGER NOT NULL DEFAULT 0,
  fresh        INTEGER NOT NULL DEFAULT 0,
  retry        INTEGER NOT NULL DEFAULT 0,
  redrive      INTEGER NOT NULL DEFAULT 0,
  blocked      INTEGER NOT NULL DEFAULT 0,
  suspects     INTEGER NOT NULL DEFAULT 0,
  bytes        INTEGER NOT NULL DEFAULT 0,
  series       INTEGER NOT NULL DEFAULT 0, -- causes that have buckets
  texts        INTEGER NOT NULL DEFAULT 0, -- distinct texts
  published    INTEGER NOT NULL DEFAULT 0,
  parked       INTEGER NOT NULL DEFAULT 0,
  imported     INTEGER NOT NULL DEFAULT 0,
  moved_in     INTEGER NOT NULL DEFAULT 0,
  repeated     INTEGER NOT NULL DEFAULT 0,
  done         INTEGER NOT NULL DEFAULT 0,
  dropped      INTEGER NOT NULL DEFAULT 0,
  archived     INTEGER NOT NULL DEFAULT 0,
  moved_out    INTEGER NOT NULL DEFAULT 0,
  exhausted    INTEGER NOT NULL DEFAULT 0,
  permanent    INTEGER NOT NULL DEFAULT 0,
  crashed      INTEGER NOT NULL DEFAULT 0,
  expired      INTEGER NOT NULL DEFAULT 0,
  undecodable  INTEGER NOT NULL DEFAULT 0,
  oversize     INTEGER NOT NULL DEFAULT 0,
  unroutable   INTEGER NOT NULL DEFAULT 0,
  rejected     INTEGER NOT NULL DEFAULT 0,
  loop         INTEGER NOT NULL DEFAULT 0,
  uncertain    INTEGER NOT NULL DEFAULT 0,
  disabled     INTEGER NOT NULL DEFAULT 0,
  manual       INTEGER NOT NULL DEFAULT 0,
  corrupt      INTEGER NOT NULL DEFAULT 0
) STRICT;

-- What a message carries. seq is its place in the order of publication; of a
-- message whose id the store made, it is the time stamp within the id. crc: the checksum
-- of kind, key, headers and body, by driver.Checksum; null: unchecked.
CREATE TABLE message (
  seq         INTEGER PRIMARY KEY,
  queue       INTEGER NOT NULL,
  id          TEXT    NOT NULL,
  key         TEXT,
  headers     BLOB,
  published   INTEGER NOT NULL,
  expires     INTEGER,
  reply_to    TEXT,
  generation  INTEGER NOT NULL,
  redrives    INTEGER NOT NULL,
  plan        TEXT,
  origin      TEXT,
  edited_from TEXT,
  crc         INTEGER,
  body        BLOB    NOT NULL
) STRICT;
CREATE INDEX message_plan ON message (queue, plan) WHERE plan IS NOT NULL;

-- One row a waiting message, in the order in which claims read.
-- class: 0-2 lane, 3 suspect, 4 blocked behind the head of its key.
-- flags: 1 suspect, 2 the id is remembered, 4 edited, 8 a first failure, 16 a last failure,
-- 32 due was asked for by a delay, a retry or a schedule.
-- token: of the last lease that was settled or ran out.
-- turn: place in the order of its key; 0 without order.
-- born: the time of publication, of messages that were put with one.
CREATE TABLE waiting (
  queue    INTEGER NOT NULL,
  class    INTEGER NOT NULL,
  due      INTEGER NOT NULL,
  seq      INTEGER NOT NULL,
  lane     INTEGER NOT NULL,
  attempts INTEGER NOT NULL,
  failures INTEGER NOT NULL,
  earlier  INTEGER NOT NULL, -- failures of earlier generations
  crashes  INTEGER NOT NULL,
  flags    INTEGER NOT NULL,
  token    INTEGER NOT NULL,
  turn     INTEGER NOT NULL,
  kind     TEXT,
  expires  INTEGER,
  born     INTEGER,
  PRIMARY KEY (queue, class, due, seq)
) WITHOUT ROWID, STRICT;
CREATE INDEX waiting_seq ON waiting (queue, seq);
CREATE INDEX waiting_expires ON waiting (queue, expires) WHERE expires IS NOT NULL;
CREATE INDEX waiting_born ON waiting (queue, born) WHERE born IS NOT NULL;

-- One row a dead letter. due: when a processor of dead letters may claim it.
-- text: what its newest failure says; null: it has none, 0: it is not in table text.
CREATE TABLE dead (
  seq       INTEGER PRIMARY KEY,
  queue     INTEGER NOT NULL,
  died      INTEGER NOT NULL,
  due       INTEGER NOT NULL,
  reason    INTEGER NOT NULL,
  signature TEXT    NOT NULL,
  lane      INTEGER NOT NULL,
  attempts  INTEGER NOT NULL,
  failures  INTEGER NOT NULL,
  earlier   INTEGER NOT NULL,
  crashes   INTEGER NOT NULL,
  flags     INTEGER NOT NULL,
  token     INTEGER NOT NULL,
  turn      INTEGER NOT NULL,
  kind      TEXT,
  text      INTEGER
) STRICT;
CREATE INDEX dead_died ON dead (queue, died);
CREATE INDEX dead_due ON dead (queue, due);
CREATE INDEX dead_cause ON dead (queue, reason, signature, died);
CREATE INDEX dead_edited ON dead (queue, died) WHERE flags & 4;
CREATE INDEX dead_text ON dead (queue, text, died);

-- What failures of dead letters say, once for all of a queue that say the same: the error, and
-- the target's answer. What a mask named when it died is not here.
CREATE TABLE text (
  text   INTEGER PRIMARY KEY,
  queue  INTEGER NOT NULL,
  hash   INTEGER NOT NULL,
  error  TEXT    NOT NULL,
  answer TEXT    NOT NULL
) STRICT;
CREATE UNIQUE INDEX text_hash ON text (queue, hash);

-- How many are dead of each cause; a row goes with the last of them.
CREATE TABLE cause (
  queue     INTEGER NOT NULL,
  reason    INTEGER NOT NULL,
  signature TEXT    NOT NULL,
  dead      INTEGER NOT NULL,
  PRIMARY KEY (queue, reason, signature)
) WITHOUT ROWID, STRICT;

-- How often messages died of each cause, by the span of time that begins at start. reason 0:
-- the causes beyond the most that have buckets of their own.
CREATE TABLE bucket (
  queue     INTEGER NOT NULL,
  reason    INTEGER NOT NULL,
  signature TEXT    NOT NULL,
  width     INTEGER NOT NULL,
  start     INTEGER NOT NULL,
  deaths    INTEGER NOT NULL,
  PRIMARY KEY (queue, reason, signature, width, start)
) WITHOUT ROWID, STRICT;
CREATE INDEX bucket_start ON bucket (width, start);

-- First (seq*2) and last (seq*2+1) failure of a message, as JSON.
CREATE TABLE failure (
  slot INTEGER PRIMARY KEY,
  json BLOB    NOT NULL
) STRICT;

-- Messages as they were before they were edited in place, with the checksum of then.
CREATE TABLE original (
  seq     INTEGER PRIMARY KEY,
  kind    TEXT,
  key     TEXT,
  headers BLOB,
  crc     INTEGER,
  body    BLOB NOT NULL
) STRICT;

-- Messages with a key, waiting or dead. ordered: 1 while the message takes part in
-- the order of its key, whose head has the lowest turn.
CREATE TABLE keyed (
  queue   INTEGER NOT NULL,
  key     TEXT    NOT NULL,
  ordered INTEGER NOT NULL,
  turn    INTEGER NOT NULL,
  seq     INTEGER NOT NULL,
  PRIMARY KEY (queue, key, ordered, turn, seq)
) WITHOUT ROWID, STRICT;

-- Ids that callers chose. keep: how long it is remembered beyond the message's life.
-- until: when it may be forgotten, once the message ended.
CREATE TABLE chosen (
  queue   INTEGER NOT NULL,
  id      TEXT    NOT NULL,
  seq     INTEGER NOT NULL,
  hash    INTEGER NOT NULL,
  outcome INTEGER NOT NULL,
  reason  INTEGER NOT NULL,
  at      INTEGER NOT NULL,
  keep    INTEGER NOT NULL,
  until   INTEGER,
  PRIMARY KEY (queue, id)
) WITHOUT ROWID, STRICT;
CREATE INDEX chosen_until ON chosen (until) WHERE until IS NOT NULL;

-- One row a claim of which something is not settled: the messages at
-- token, token+1, ... by seq. It says to the next process which messages were in flight when this
-- one died.
CREATE TABLE claim (
  token INTEGER PRIMARY KEY,
  queue INTEGER NOT NULL,
  isolated INTEGER NOT NULL,
  seqs  BLOB    NOT NULL
) STRICT;

-- Small values shared by all users of the store.
CREATE TABLE record (
  space   TEXT    NOT NULL,
  key     TEXT    NOT NULL,
  value   BLOB    NOT NULL,
  version INTEGER NOT NULL,
  expires INTEGER,
  PRIMARY KEY (space, key)
) WITHOUT ROWID, STRICT;
CREATE INDEX record_expires ON record (expires) WHERE expires IS NOT NULL;

-- epoch: raised at every start, the upper half of every token.
CREATE TABLE meta (
  name  TEXT PRIMARY KEY,
  value INTEGER NOT NULL
) WITHOUT ROWID, STRICT;
INSERT INTO meta VALUES ('epoch', 0);
