package postgres

import (
	"fmt"
	"net/url"
	"strings"
	"time"
)

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
	return func(s *Store) {
		s.pollMin = max(shortest, time.Millisecond)
		s.pollMax = max(longest, s.pollMin)
	}
}

// WithoutListen only polls: no connection beside the pool is made for LISTEN and
// NOTIFY. It is for poolers in transaction mode.
func WithoutListen() Option { return func(s *Store) { s.listen = false } }

// WithoutDDL makes Open refuse a database whose tables are not those of this program,
// instead of migrating it. The error's hint says how to get the SQL; see [MigrationSQL].
func WithoutDDL() Option { return func(s *Store) { s.ddl = false } }

// WithTimeout sets how long a change may take whose caller has gone away, and after
// which its outcome is unknown. Default 15 s.
func WithTimeout(d time.Duration) Option { return func(s *Store) { s.timeout = d } }

// WithTrace calls f after each statement or transaction with its name and duration. It
// must be fast and safe for concurrent use. For metrics there is [Store.Stats].
func WithTrace(f func(statement string, took time.Duration)) Option {
	return func(s *Store) { s.trace = f }
}

// maxSchema is the longest name of a schema, in bytes: the channel of hints, which may
// have 63, is named after it.
const maxSchema = 55

// ownPrefix begins the parameters of a URL that are not PostgreSQL's.
const ownPrefix = "redrive_"

// ownParameters takes our parameters out of a URL. Its errors do not show the URL, which
// may hold a password.
func ownParameters(text string) (rest string, opts []Option, err error) {
	base, query, ok := strings.Cut(text, "?")
	if !ok {
		return text, nil, nil
	}
	var others []string
	for pair := range strings.SplitSeq(query, "&") {
		if !strings.HasPrefix(pair, ownPrefix) {
			others = append(others, pair)
			continue
		}
		name, value, _ := strings.Cut(pair, "=")
		if value, err = url.QueryUnescape(value); err != nil {
			return "", nil, fmt.Errorf("parameter %s: %w", name, err)
		}
		o, err := ownParameter(name, value)
		if err != nil {
			return "", nil, err
		}
		opts = append(opts, o)
	}
	if len(others) == 0 {
		return base, opts, nil
	}
	return base + "?" + strings.Join(others, "&"), opts, nil
}

func ownParameter(name, value string) (Option, error) {
	wrong := func(want string) (Option, error) {
		return nil, fmt.Errorf("parameter %s=%q: give %s", name, value, want)
	}
	switch name {
	case ownPrefix + "schema":
		return WithSchema(value), nil
	case ownPrefix + "ddl", ownPrefix + "listen":
		switch {
		case value != "on" && value != "off":
			return wrong("on or off")
		case value == "on":
			return func(*Store) {}, nil
		case name == ownPrefix+"ddl":
			return WithoutDDL(), nil
		}
		return WithoutListen(), nil
	case ownPrefix + "timeout":
		d, err := time.ParseDuration(value)
		if err != nil || d <= 0 {
			return wrong("a duration such as 15s")
		}
		return WithTimeout(d), nil
	case ownPrefix + "poll":
		first, last, _ := strings.Cut(value, ",")
		shortest, err := time.ParseDuration(first)
		longest, err2 := time.ParseDuration(last)
		if err != nil || err2 != nil || shortest <= 0 || longest < shortest {
			return wrong("the shortest and the longest interval, such as 5ms,1s")
		}
		return WithPoll(shortest, longest), nil
	}
	return nil, fmt.Errorf("parameter %s is not known: there are %[2]sschema, %[2]sddl, %[2]slisten, %[2]stimeout and %[2]spoll", name, ownPrefix)
}
