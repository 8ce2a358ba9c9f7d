// Package postgres keeps messages in a PostgreSQL database that several processes
// share: each message is claimed by one of them, and one that dies loses nothing.
//
// Guarantees. Publish, Settle, Apply and Update return after their transaction is
// committed, as durably as the server's synchronous_commit says; Probe tells what that
// is. Claims and extensions are not synced: a crash of the server may undo them, which
// loses no message, and a random nonce beside the token keeps an undone claim from
// having a twin. Leases, delays and expiry go by the server's clock_timestamp().
//
// Native limits. Waiting is polling, from 5 ms to 1 s apart ([WithPoll]), made shorter
// by a NOTIFY that is a hint only; a change that nobody announced, such as a
// [PublishTx] of another program, is seen within the longest interval. Publishing to
// one key of a queue with order by key is serialised until the commit. Backup is
// pg_dump's matter.
//
// Behind a pooler in transaction mode no state is kept in sessions: statements are not
// prepared by name, locks end with their transaction; only LISTEN needs a session of its
// own, and without one it polls. Open sees a pooler by the number of the server's
// process, which poolers do not pass on; what it takes for the server itself gets
// prepared statements. default_query_exec_mode in the URL decides otherwise.
//
// Caps. Everything: any delay, dead letters, repeats, emits, fences, claim records, order by
// key, browsing; identity by message, transfer by transaction.
package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/sqlstore"
)

// Store is a store in PostgreSQL. It is safe for concurrent use.
type Store struct {
	sqlstore.Verbs
	base   sqlstore.Base
	pool   *pgxpool.Pool
	sql    *statements
	listen bool
	adjust func(*pgxpool.Config) // of tests
	hints  hints
	oldest sync.Map // queue -> id at which the last look for old messages ended
}

// dialect is what a store does in PostgreSQL's SQL.
type dialect struct{ *Store }

var _ driver.Store = (*Store)(nil)

// Open opens the store in the database of a URL ("postgres://user@host/database", with
// the parameters of pgxpool), and makes or migrates its tables unless [WithoutDDL] is
// given. The URL may also say what the options say, which win: redrive_schema=NAME,
// redrive_ddl=off, redrive_listen=off, redrive_timeout=15s, redrive_poll=5ms,1s. It
// fails if the database cannot be reached before ctx ends.
func Open(ctx context.Context, url string, opts ...Option) (*Store, error) {
	s, cfg, err := configure(url, opts)
	if err != nil {
		return nil, err
	}
	if cfg.ConnConfig.DefaultQueryExecMode == undecided {
		if err := decideMode(ctx, cfg.ConnConfig); err != nil {
			return nil, openError(err, "is the server running, and may this user log in?")
		}
	}
	if s.pool, err = pgxpool.NewWithConfig(ctx, cfg); err != nil {
		return nil, openError(err, "")
	}
	if err := s.prepare(ctx); err != nil {
		s.pool.Close()
		return nil, err
	}
	s.hints.init(s, cfg.ConnConfig)
	s.base.Self = s.hints.self
	s.base.Start(ctx)
	if s.listen {
		s.base.Spawn(s.hints.send)
		s.base.Spawn(s.hints.receive)
	}
	return s, nil
}

// configure reads a URL and options.
func configure(url string, opts []Option) (*Store, *pgxpool.Config, error) {
	s := &Store{sql: newStatements(defaultSchema), listen: true}
	s.base = sqlstore.Base{Timeout: DefaultTimeout, PollMin: DefaultPollMin, PollMax: DefaultPollMax, DDL: true, Single: copies, Bytes: groupBytes}
	s.Verbs = s.base.Verbs(dialect{s})
	s.base.Texts = &sqlstore.Texts{Store: s.storeTexts, Number: s.numberOfTexts, Most: driver.MaxTexts}
	url, err := s.base.Parameters(url, map[string]func(string) error{
		"schema": func(name string) error { WithSchema(name)(s); return nil },
		"listen": func(value string) (err error) { s.listen, err = sqlstore.OnOff(value); return err },
	})
	if err != nil {
		return nil, nil, openError(err, "")
	}
	for _, o := range opts {
		o(s)
	}
	if n := len(s.sql.schema); n == 0 || n > maxSchema {
		return nil, nil, openError(fmt.Errorf("the name of the schema has %d bytes", n), fmt.Sprintf("%sschema: give it 1 to %d", sqlstore.ParameterPrefix, maxSchema))
	}
	cfg, err := poolConfig(url)
	if err != nil {
		return nil, nil, openError(err, "write it as postgres://user:password@host:5432/database")
	}
	if s.adjust != nil {
		s.adjust(cfg)
	}
	return s, cfg, nil
}

// poolConfig is a URL's, with defaults that suit a store.
func poolConfig(url string) (*pgxpool.Config, error) {
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	for name := range cfg.ConnConfig.RuntimeParams { // what is unknown goes to the server as a setting
		if sqlstore.Misspelt(name) {
			return nil, fmt.Errorf("parameter %s is not known", name)
		}
	}
	if !named(url, "pool_max_conns") {
		cfg.MaxConns = DefaultConns
	}
	if cfg.ConnConfig.ConnectTimeout == 0 {
		cfg.ConnConfig.ConnectTimeout = 10 * time.Second
	}
	if !named(url, "default_query_exec_mode") {
		cfg.ConnConfig.DefaultQueryExecMode = undecided
	}
	if cfg.ConnConfig.RuntimeParams["application_name"] == "" {
		cfg.ConnConfig.RuntimeParams["application_name"] = "redrive"
	}
	return cfg, nil
}

// undecided is a way of running statements that is chosen when the server is known.
const undecided pgx.QueryExecMode = -1

// decideMode has statements prepared by name on connections to the server itself, which
// saves more than half of the server's work for a single message. Their plans are kept,
// so they must not depend on how small a table was when they were made.
func decideMode(ctx context.Context, cfg *pgx.ConnConfig) error {
	cfg.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return err
	}
	defer closeConn(conn)
	var pid uint32
	if err := conn.QueryRow(ctx, "SELECT pg_backend_pid()").Scan(&pid); err != nil {
		return err
	}
	if pid == conn.PgConn().PID() {
		cfg.DefaultQueryExecMode = pgx.QueryExecModeCacheStatement
		cfg.RuntimeParams["enable_seqscan"] = "off"
		// Both would be used for what only seems dear without scans.
		cfg.RuntimeParams["jit"] = "off"
		cfg.RuntimeParams["max_parallel_workers_per_gather"] = "0"
	}
	return nil
}

// prepare checks the database and its tables.
func (s *Store) prepare(ctx context.Context) error {
	var encoding string
	var replica bool
	err := s.pool.QueryRow(ctx, "SELECT current_setting('server_encoding'), pg_is_in_recovery()").Scan(&encoding, &replica)
	switch {
	case err != nil:
		return openError(err, "is the server running, and may this user log in?")
	case encoding != "UTF8":
		return openError(fmt.Errorf("the database's encoding is %s", encoding), "create a database with ENCODING 'UTF8'")
	case replica:
		return openError(fmt.Errorf("the server is a read-only replica"), "name the primary, or add target_session_attrs=read-write")
	}
	return s.base.Migrate(ctx, SchemaVersion, s.base.DDL)
}

func openError(err error, hint string) error {
	if known := (*redrive.Error)(nil); errors.As(err, &known) && known.Op == "open" {
		return err
	}
	return &redrive.Error{Op: "open", Err: fmt.Errorf("store in PostgreSQL: %w", err), Hint: hint}
}

// The rest of sqlstore.Server.

func (dialect) OpenError(err error, hint string) error { return openError(err, hint) }
func (dialect) Fault(op string, err error) error       { return fault(op, err) }
func (dialect) ReadFault(op string, err error) error   { return readFault(op, err) }
func (dialect) DataError(err error) bool               { return dataError(err) }
func (d dialect) Announce(queues []string)             { d.hints.add(queues) }

// Close implements driver.Source. What was sent is awaited. Leases that are still
// held run out.
func (s *Store) Close() error {
	if s.base.Close() {
		s.pool.Close()
	}
	return nil
}

// Stats returns the state of the pool of connections, and how statements went.
func (s *Store) Stats() driver.StoreStats {
	p := s.pool.Stat()
	return driver.StoreStats{
		Pool: driver.PoolStats{
			Max: int(p.MaxConns()), Open: int(p.TotalConns()), InUse: int(p.AcquiredConns()), Idle: int(p.IdleConns()),
			Waits: p.EmptyAcquireCount(), Waited: p.EmptyAcquireWaitTime(),
		},
		Statements: s.base.Statements(),
	}
}

// Caps implements driver.Source.
func (s *Store) Caps() driver.Caps {
	c := sqlstore.Caps("postgres")
	c.Texts = true
	return c
}

// Now implements driver.Store.
func (s *Store) Now(ctx context.Context) (time.Time, error) {
	var now time.Time
	err := s.read(ctx, "now", nil, func(r row) error { return r.Scan(&now) })
	return now.UTC(), err
}

// named reports whether a connection string sets a parameter.
func named(url, parameter string) bool { return strings.Contains(url, parameter+"=") }
