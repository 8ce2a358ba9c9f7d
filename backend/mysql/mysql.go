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
// Caps. Everything: any delay, dead letters, repeats, emits, fences, marks, order by
// key, browsing; identity by message, transfer by transaction.
package mysql

import (
	"context"
	"database/sql"
	"fmt"
	"regexp"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/sqlstore"
)

// Store is a store in MySQL or MariaDB. It is safe for concurrent use.
type Store struct {
	pool     *sql.DB
	sql      *statements
	self     string // names this process
	database string
	maria    bool
	packet   int // the server's max_allowed_packet
	timeout  time.Duration
	pollMin  time.Duration
	pollMax  time.Duration
	ddl      bool
	trace    func(statement string, took time.Duration)

	durations sqlstore.Recorder

	stop     context.CancelFunc // ends the background
	alive    context.Context    //nolint:containedctx // of the background goroutines
	running  sync.WaitGroup
	over     atomic.Bool
	gatherer sqlstore.Gatherer
	watcher  sqlstore.Watcher
	floors   sqlstore.Floors
	oldest   sync.Map // queue -> id at which the last look for old messages ended
}

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
	if err := s.prepare(ctx); err != nil {
		_ = s.pool.Close()
		return nil, err
	}
	s.alive, s.stop = context.WithCancel(context.WithoutCancel(ctx))
	s.watcher = sqlstore.Watcher{
		Peek: s.peek, Ready: s.ready, Closed: s.alive.Done(), Shortest: s.pollMin, Longest: s.pollMax, Timeout: s.timeout,
	}
	s.gatherer = sqlstore.Gatherer{
		Store: s.storeItems, AtFault: dataError, Fault: fault, Changed: s.changed, Timeout: s.timeout, Bytes: groupBytes,
	}
	sqlstore.Spawn(s.alive, &s.running, s.pollMax, s.watcher.Poll)
	sqlstore.Spawn(s.alive, &s.running, s.pollMax, s.upkeep)
	sqlstore.Spawn(s.alive, &s.running, s.pollMax, func(ctx context.Context) { s.floors.Run(ctx, s.firstDue) })
	sqlstore.Spawn(s.alive, &s.running, s.pollMax, func(ctx context.Context) { s.floors.Share(ctx, s) })
	s.learnFloors(ctx)
	return s, nil
}

// configure makes a store of its URL and options that is not connected yet.
func configure(url string, opts []Option) (*Store, *target, error) {
	t, err := parseURL(url)
	if err != nil {
		return nil, nil, openError(err, urlHint)
	}
	s := &Store{
		sql: newStatements(defaultPrefix), self: strconv.FormatInt(newNonce(), 36), database: t.config.DBName, timeout: DefaultTimeout,
		pollMin: DefaultPollMin, pollMax: DefaultPollMax, ddl: true,
	}
	for _, o := range append(t.opts, opts...) {
		o(s)
	}
	if !goodPrefix.MatchString(s.sql.prefix) {
		return nil, nil, openError(fmt.Errorf("%w prefix %q", redrive.ErrInvalid, s.sql.prefix), "use at most 40 of a-z A-Z 0-9 _")
	}
	return s, t, nil
}

var goodPrefix = regexp.MustCompile(`^[A-Za-z0-9_]{1,40}$`)

// prepare checks the tables.
func (s *Store) prepare(ctx context.Context) error {
	if s.ddl {
		return s.Migrate(ctx)
	}
	have, err := s.version(ctx)
	if err != nil {
		return openError(err, "")
	}
	if have != SchemaVersion {
		return openError(fmt.Errorf("the tables are of version %d, this program needs %d", have, SchemaVersion),
			"have somebody who may change tables run the output of `redrive migrate --print`")
	}
	return nil
}

func openError(err error, hint string) error {
	return &redrive.Error{Op: "open", Err: fmt.Errorf("store in MySQL: %w", err), Hint: hint}
}

// Close implements driver.Source. What was sent is awaited. Leases that are still
// held run out.
func (s *Store) Close() error {
	if s.over.Swap(true) {
		s.running.Wait()
		return nil
	}
	s.gatherer.Close()
	s.stop()
	s.watcher.Wake()
	s.running.Wait()
	return s.pool.Close()
}

func (s *Store) closed() error {
	if s.over.Load() {
		return redrive.ErrClosed
	}
	return nil
}

// detach gives a change a context of its own: cutting it off would leave open what it
// did, so a caller that goes away only stops waiting for its turn.
func (s *Store) detach(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), s.timeout)
}

// ready reports why a call cannot begin.
func (s *Store) ready(ctx context.Context) error {
	if err := s.closed(); err != nil {
		return err
	}
	return ctx.Err()
}

// observe counts a statement that ended with err.
func (s *Store) observe(statement string, began time.Time, err error) {
	took := time.Since(began)
	s.durations.Observe(statement, took, err)
	if s.trace != nil {
		s.trace(statement, took)
	}
}

// Stats returns the state of the pool of connections, and how statements went.
func (s *Store) Stats() driver.StoreStats {
	p := s.pool.Stats()
	return driver.StoreStats{
		Pool: driver.PoolStats{
			Max: p.MaxOpenConnections, Open: p.OpenConnections, InUse: p.InUse, Idle: p.Idle, Waits: p.WaitCount, Waited: p.WaitDuration,
		},
		Statements: s.durations.Snapshot(),
	}
}

// Caps implements driver.Source.
func (s *Store) Caps() driver.Caps {
	return driver.Caps{
		Name: "mysql", MaxDelay: driver.Never, DeadLetters: true, KeepsHistory: true, Repeats: true, Emits: true,
		Fenced: true, Filters: true, MarksClaims: true, KeepsLeases: true, Remembers: true, Expires: true, Ordered: true, Browsable: true,
		Identity: redrive.IdentityMessage, Transfer: driver.TransferTransaction,
	}
}

// Now implements driver.Store.
func (s *Store) Now(ctx context.Context) (time.Time, error) {
	var now int64
	err := s.read(ctx, "now", nil, step{sql: s.sql.get("now"), scan: scanInto(&now)})
	return timeAt(now), err
}

// scanInto returns a scan of one row.
func scanInto(dest ...any) func(row) error {
	return func(r row) error { return r.Scan(dest...) }
}
