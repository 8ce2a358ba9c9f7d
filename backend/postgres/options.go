package postgres

import "time"

// Defaults of the options.
const (
	DefaultConns   = 16
	DefaultTimeout = 15 * time.Second
	DefaultPollMin = 5 * time.Millisecond
	DefaultPollMax = time.Second
)

// Option changes how a store is opened.
type Option func(*Store)

// WithSchema puts the tables into another schema than "redrive". Its name has at most
// 55 bytes.
func WithSchema(name string) Option { return func(s *Store) { s.sql = newStatements(name) } }

// WithPoll sets the shortest and the longest interval at which the database is asked
// for changes. The longest one is the bound within which a change is seen that nobody
// announced.
func WithPoll(shortest, longest time.Duration) Option {
	return func(s *Store) { s.base.Poll(shortest, longest) }
}

// WithoutListen only polls: no connection beside the pool is made for LISTEN and
// NOTIFY. It is for poolers in transaction mode.
func WithoutListen() Option { return func(s *Store) { s.listen = false } }

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

// maxSchema is the longest name of a schema, in bytes: the channel of hints, which may
// have 63, is named after it.
const maxSchema = 55
