package mysql

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
	return func(s *Store) {
		s.pollMin = max(shortest, time.Millisecond)
		s.pollMax = max(longest, s.pollMin)
	}
}

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

// ownPrefix begins the parameters of a URL that are options of ours.
const ownPrefix = "redrive_"

// ownParameters takes the parameters that are options of ours out of a URL's.
func ownParameters(q url.Values) ([]Option, error) {
	var opts []Option
	for name := range q {
		if !strings.HasPrefix(name, ownPrefix) {
			continue
		}
		o, err := ownParameter(name, q.Get(name))
		if err != nil {
			return nil, err
		}
		opts = append(opts, o)
		q.Del(name)
	}
	return opts, nil
}

func ownParameter(name, value string) (Option, error) {
	wrong := func(want string) (Option, error) {
		return nil, fmt.Errorf("parameter %s=%q: give %s", name, value, want)
	}
	switch name {
	case ownPrefix + "prefix":
		return WithPrefix(value), nil
	case ownPrefix + "ddl":
		switch value {
		case "on":
			return func(*Store) {}, nil
		case "off":
			return WithoutDDL(), nil
		}
		return wrong("on or off")
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
			return wrong("the shortest and the longest interval, such as 5ms,250ms")
		}
		return WithPoll(shortest, longest), nil
	}
	return nil, fmt.Errorf("parameter %s is not known: there are %[2]sprefix, %[2]sddl, %[2]stimeout and %[2]spoll", name, ownPrefix)
}
