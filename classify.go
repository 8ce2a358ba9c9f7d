package redrive

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/redrive/redrive/internal/errname"
)

// Classifier says what an error means by marking it as a handler would: with
// [Permanent], [PermanentAs], [RetryAfter], [Uncounted] or another verb. It returns nil
// where it has no opinion. The handler's own verbs come before it, and the floor of a
// [RetryAfter] stays; where it has no opinion HTTP 400, 404, 413 and 422 and bodies that
// do not decode are permanent, everything else is retried.
type Classifier interface {
	Classify(err error) error
}

// ClassifierFunc is a function as a Classifier.
type ClassifierFunc func(err error) error

// Classify calls f.
func (f ClassifierFunc) Classify(err error) error { return f(err) }

// Table is a classifier made of matchers, as in the configuration file. A matcher
// is an HTTP status ("404", "5xx"), "timeout", or "type:PATTERN" with * at either
// end, compared with the names of the error chain (see [NamedError]). The first of
// Permanent, Release and Transient that matches decides.
type Table struct {
	Permanent []string
	Release   []string
	Transient []string
}

// Check reports a matcher that cannot be understood.
func (t *Table) Check() error {
	for _, list := range [][]string{t.Permanent, t.Release, t.Transient} {
		for _, m := range list {
			if _, ok := strings.CutPrefix(m, "type:"); ok || m == "timeout" || isStatus(m) {
				continue
			}
			return fmt.Errorf("%w matcher %q: use an HTTP status (404, 5xx), timeout, or type:PATTERN", ErrInvalid, m)
		}
	}
	return nil
}

func isStatus(m string) bool {
	if len(m) != 3 || m[0] < '1' || m[0] > '5' {
		return false
	}
	if m[1:] == "xx" {
		return true
	}
	_, err := strconv.Atoi(m)
	return err == nil
}

// Classify implements Classifier.
func (t *Table) Classify(err error) error {
	match := func(m string) bool { return matches(m, err) }
	switch {
	case slices.ContainsFunc(t.Permanent, match):
		return Permanent(err)
	case slices.ContainsFunc(t.Release, match):
		return Uncounted(err, 0)
	case slices.ContainsFunc(t.Transient, match):
		return RetryAfter(err, 0)
	}
	return nil
}

func matches(m string, err error) bool {
	if pattern, ok := strings.CutPrefix(m, "type:"); ok {
		return slices.ContainsFunc(errname.Chain(err), func(name string) bool { return globMatch(pattern, name) })
	}
	if m == "timeout" {
		var t interface{ Timeout() bool }
		return errors.As(err, &t) && t.Timeout()
	}
	var status StatusError
	if !errors.As(err, &status) {
		return false
	}
	s := strconv.Itoa(status.HTTPStatus())
	return s == m || len(s) == 3 && m[1:] == "xx" && m[0] == s[0]
}

// globMatch matches a pattern with * at its start, its end, or both.
func globMatch(pattern, s string) bool {
	rest, head := strings.CutPrefix(pattern, "*")
	rest, tail := strings.CutSuffix(rest, "*")
	switch {
	case head && tail:
		return strings.Contains(s, rest)
	case head:
		return strings.HasSuffix(s, rest)
	case tail:
		return strings.HasPrefix(s, rest)
	}
	return s == rest
}
