// Package mysql keeps messages in a database of MySQL 8 or MariaDB 10.6 and later that
// several processes share: each message is claimed by one of them, and one that dies
// loses nothing.
//
// Guarantees. Publish, Settle, Apply, Claim and Update return after their transaction
// is committed, as durably as the server's innodb_flush_log_at_trx_commit and sync_binlog
// say; Probe tells what that is. A random nonce beside the token keeps a claim that a
// crash of the server undid from having a twin. Leases, delays and expiry go by the
// server's clock in UTC. Deadlocks and lock timeouts are repeated inside.
//
// Native limits. Waiting is polling, from 5 ms to 250 ms apart ([WithPoll]): a change of
// another process is seen within the longest interval, one of this process at once.
// A claim costs a commit as durable as any other, since no session may ask for less. Bodies
// are bounded by the server's max_allowed_packet. Publishing to one key of a queue with
// order by key is serialised until the commit. Backup is mysqldump's matter.
//
// Names and ids are compared as bytes, whatever the database's collation is.
//
// Caps. Everything: any delay, dead letters, repeats, emits, fences, claim records, order by
// key, browsing; identity by message, transfer by transaction.
package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"sync"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/sqlstore"
)

// Store is a store in MySQL or MariaDB. It is safe for concurrent use.
type Store struct {
	sqlstore.Verbs
	base     sqlstore.Base
	pool     *sql.DB
	sql      *statements
	database string
	maria    bool
	packet   int      // the server's max_allowed_packet
	oldest   sync.Map // queue -> id at which the last look for old messages ended
}

// dialect is what a store does in MySQL's SQL.
type dialect struct{ *Store }

var _ driver.Store = (*Store)(nil)

// Open opens the store in the database of a URL, "mysql://user:password@host:3306/database".
// Its parameters are those of go-sql-driver, socket=/path and pool_max_conns=16, and for
// what the options set redrive_prefix=redrive_, redrive_ddl=off, redrive_timeout=15s and
// redrive_poll=5ms,250ms. Open makes or migrates the tables unless [WithoutDDL] is given,
// and fails if the database cannot be reached before ctx ends.
func Open(ctx context.Context, url string, opts ...Option) (*Store, error) {
	s, t, err := configure(url, opts)
	if err != nil {
		return nil, err
	}
	if err := s.greet(ctx, t); err != nil {
		return nil, err
	}
	if err := s.base.Migrate(ctx, SchemaVersion, s.base.DDL); err != nil {
		_ = s.pool.Close()
		return nil, err
	}
	s.base.Start(ctx)
	return s, nil
}

// configure makes a store of its URL and options that is not connected yet.
func configure(url string, opts []Option) (*Store, *target, error) {
	s := &Store{sql: newStatements(defaultPrefix)}
	s.base = sqlstore.Base{
		Timeout: DefaultTimeout, PollMin: DefaultPollMin, PollMax: DefaultPollMax, DDL: true, Self: strconv.FormatInt(newNonce(), 36), Bytes: groupBytes,
	}
	s.Verbs = s.base.Verbs(dialect{s})
	url, err := s.base.Parameters(url, map[string]func(string) error{
		"prefix": func(prefix string) error { WithPrefix(prefix)(s); return nil },
	})
	if err != nil {
		return nil, nil, openError(err, urlHint)
	}
	t, err := parseURL(url)
	if err != nil {
		return nil, nil, openError(err, urlHint)
	}
	s.database = t.config.DBName
	for _, o := range opts {
		o(s)
	}
	if !goodPrefix.MatchString(s.sql.prefix) {
		return nil, nil, openError(fmt.Errorf("%w prefix %q", redrive.ErrInvalid, s.sql.prefix), "use at most 40 of a-z A-Z 0-9 _")
	}
	return s, t, nil
}

var goodPrefix = regexp.MustCompile(`^[A-Za-z0-9_]{1,40}$`)

func openError(err error, hint string) error {
	if known := (*redrive.Error)(nil); errors.As(err, &known) && known.Op == "open" {
		return err
	}
	return &redrive.Error{Op: "open", Err: fmt.Errorf("store in MySQL: %w", err), Hint: hint}
}

// The rest of sqlstore.Server.

func (dialect) OpenError(err error, hint string) error { return openError(err, hint) }
func (dialect) Fault(op string, err error) error       { return fault(op, err) }
func (dialect) ReadFault(op string, err error) error   { return fault(op, err) }
func (dialect) DataError(err error) bool               { return dataError(err) }
func (dialect) Announce([]string)                      {}

// Close implements driver.Source. What was sent is awaited. Leases that are still
// held run out.
func (s *Store) Close() error {
	if s.base.Close() {
		return s.pool.Close()
	}
	return nil
}

// Stats returns the state of the pool of connections, and how statements went.
func (s *Store) Stats() driver.StoreStats {
	p := s.pool.Stats()
	return driver.StoreStats{
		Pool: driver.PoolStats{
			Max: p.MaxOpenConnections, Open: p.OpenConnections, InUse: p.InUse, Idle: p.Idle, Waits: p.WaitCount, Waited: p.WaitDuration,
		},
		Statements: s.base.Statements(),
	}
}

// Caps implements driver.Source.
func (s *Store) Caps() driver.Caps { return sqlstore.Caps("mysql") }

// Now implements driver.Store.
func (s *Store) Now(ctx context.Context) (time.Time, error) {
	var now int64
	err := s.read(ctx, "now", nil, step{sql: s.sql.Get("now"), scan: scanInto(&now)})
	return timeAt(now), err
}

// scanInto returns a scan of one row.
func scanInto(dest ...any) func(row) error {
	return func(r row) error { return r.Scan(dest...) }
}
