package mysql

import "time"

// Defaults of the options.
const (
	DefaultConns   = 16
	DefaultTimeout = 15 * time.Second
	DefaultPollMin = 5 * time.Millisecond
	DefaultPollMax = 250 * time.Millisecond
)

// Option changes how a store is opened.
type Option func(*Store)

// WithPrefix lets the tables' names begin with another prefix than "redrive_": at most
// 40 of a-z, A-Z, 0-9 and _.
func WithPrefix(prefix string) Option { return func(s *Store) { s.sql = newStatements(prefix) } }

// WithPoll sets the shortest and the longest interval at which the database is asked
// for changes. The longest one is the bound within which a change of another process is
// seen.
func WithPoll(shortest, longest time.Duration) Option {
	return func(s *Store) { s.base.Poll(shortest, longest) }
}

// WithoutDDL makes Open refuse a database whose tables are not those of this program,
// instead of migrating it. The error's hint says how to get the SQL; see [MigrationSQL].
func WithoutDDL() Option { return func(s *Store) { s.base.DDL = false } }

// WithTimeout sets how long a change may take whose caller has gone away, and after
// which its outcome is unknown. Default 15 s.
func WithTimeout(d time.Duration) Option { return func(s *Store) { s.base.Timeout = d } }

// WithTrace calls f after each statement or transaction with its name and duration. It
// must be fast and safe for concurrent use. For metrics there is [Store.Stats].
func WithTrace(f func(statement string, took time.Duration)) Option {
	return func(s *Store) { s.base.Trace = f }
}
