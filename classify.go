package redrive

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redrive/redrive/internal/errname"
	"github.com/redrive/redrive/internal/text"
)

// Class is what a failure means for its message.
type Class uint8

// The classes.
const (
	ClassTransient Class = iota + 1 // retry by the policy
	ClassPermanent                  // dead at once
	ClassRelease                    // give back, uncounted
	ClassRepeat                     // not a failure: due again in the next generation
)

var classNames = []string{"", "transient", "permanent", "release", "repeat"}

// String returns the class in lower case.
func (c Class) String() string { return text.Enum(classNames, c) }

// Classification is what a classifier makes of an error.
type Classification struct {
	Class  Class
	Reason Reason        // for ClassPermanent; 0: permanent
	After  time.Duration // floor of the delay
}

// Classifier decides what an error means. It reports false where it has no opinion;
// the next one, at last [DefaultClassifier], is then asked.
type Classifier interface {
	Classify(err error) (Classification, bool)
}

// ClassifierFunc is a function as a Classifier.
type ClassifierFunc func(err error) (Classification, bool)

// Classify calls f.
func (f ClassifierFunc) Classify(err error) (Classification, bool) { return f(err) }

// Classify asks the handler's own verbs first ([Permanent], [Release] and the like),
// then c if it is not nil, then the defaults: HTTP 400, 404, 413 and 422 and bodies
// that do not decode are permanent, everything else is transient. [RetryAfter] sets a
// floor under the delay, whatever c says about its error, and retries where c has no
// opinion.
func Classify(c Classifier, err error) Classification {
	var v *verbError
	verb := errors.As(err, &v)
	if verb && v.class != ClassTransient {
		return Classification{Class: v.class, Reason: v.reason, After: v.after}
	}
	if c != nil {
		if got, ok := c.Classify(err); ok {
			if verb {
				got.After = max(got.After, v.after)
			}
			return got
		}
	}
	if verb {
		return Classification{Class: v.class, After: v.after}
	}
	got, _ := DefaultClassifier.Classify(err)
	return got
}

// DefaultClassifier always has an opinion.
var DefaultClassifier Classifier = ClassifierFunc(func(err error) (Classification, bool) {
	var undecodable *DecodeError
	if errors.As(err, &undecodable) {
		return Classification{Class: ClassPermanent, Reason: ReasonUndecodable}, true
	}
	var status StatusError
	if errors.As(err, &status) {
		switch status.HTTPStatus() {
		case 400, 404, 422:
			return Classification{Class: ClassPermanent, Reason: ReasonPermanent}, true
		case 413:
			return Classification{Class: ClassPermanent, Reason: ReasonOversize}, true
		}
	}
	return Classification{Class: ClassTransient}, true
})

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
func (t *Table) Classify(err error) (Classification, bool) {
	match := func(m string) bool { return matches(m, err) }
	switch {
	case slices.ContainsFunc(t.Permanent, match):
		return Classification{Class: ClassPermanent, Reason: ReasonPermanent}, true
	case slices.ContainsFunc(t.Release, match):
		return Classification{Class: ClassRelease}, true
	case slices.ContainsFunc(t.Transient, match):
		return Classification{Class: ClassTransient}, true
	}
	return Classification{}, false
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
