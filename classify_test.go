package redrive_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"testing"
	"time"

	"github.com/redrive/redrive"
)

// statusError is an error with an HTTP status.
type statusError int

func (e statusError) Error() string   { return fmt.Sprint("status ", int(e)) }
func (e statusError) HTTPStatus() int { return int(e) }

// ValidationError is an error of an application.
type ValidationError struct{}

func (*ValidationError) Error() string { return "invalid" }

func TestClassify(t *testing.T) {
	base := errors.New("x")
	table := &redrive.Table{Permanent: []string{"409", "type:*ValidationError"}, Release: []string{"503"}, Transient: []string{"404", "timeout"}}
	transient := redrive.Classification{Class: redrive.ClassTransient}
	permanent := redrive.Classification{Class: redrive.ClassPermanent, Reason: redrive.ReasonPermanent}
	for _, c := range []struct {
		name string
		c    redrive.Classifier
		err  error
		want redrive.Classification
	}{
		{"anything", nil, base, transient},
		{"a timeout", nil, context.DeadlineExceeded, transient},
		{"permanent", nil, redrive.Permanent(base), permanent},
		{"permanent, wrapped", nil, fmt.Errorf("sending: %w", redrive.Permanent(base)), permanent},
		{"permanent, joined", nil, errors.Join(base, redrive.Permanent(base)), permanent},
		{"a reason", nil, redrive.DeadLetter(base, redrive.ReasonRejected), redrive.Classification{Class: redrive.ClassPermanent, Reason: redrive.ReasonRejected}},
		{"retry after", nil, redrive.RetryAfter(base, time.Minute), redrive.Classification{Class: redrive.ClassTransient, After: time.Minute}},
		{"retry after a negative time", nil, redrive.RetryAfter(base, -1), transient},
		{"release", nil, redrive.Release(base, time.Second), redrive.Classification{Class: redrive.ClassRelease, After: time.Second}},
		{"pause", nil, redrive.Pause(base, time.Second), redrive.Classification{Class: redrive.ClassRelease, After: time.Second}},
		{"disable", nil, redrive.Disable(base), redrive.Classification{Class: redrive.ClassPermanent, Reason: redrive.ReasonDisabled}},
		{"repeat", nil, redrive.RepeatAfter(time.Hour), redrive.Classification{Class: redrive.ClassRepeat, After: time.Hour}},
		{"a body that does not decode", nil, fmt.Errorf("x: %w", &redrive.DecodeError{Kind: "k", Err: base}), redrive.Classification{Class: redrive.ClassPermanent, Reason: redrive.ReasonUndecodable}},
		{"400", nil, statusError(400), permanent},
		{"404", nil, fmt.Errorf("x: %w", statusError(404)), permanent},
		{"413", nil, statusError(413), redrive.Classification{Class: redrive.ClassPermanent, Reason: redrive.ReasonOversize}},
		{"422", nil, statusError(422), permanent},
		{"401", nil, statusError(401), transient},
		{"408", nil, statusError(408), transient},
		{"429", nil, statusError(429), transient},
		{"500", nil, statusError(500), transient},
		{"the table: permanent", table, statusError(409), permanent},
		{"the table: release", table, statusError(503), redrive.Classification{Class: redrive.ClassRelease}},
		{"the table: transient", table, statusError(404), transient},
		{"the table: a type", table, fmt.Errorf("x: %w", &ValidationError{}), permanent},
		{"the table: no opinion", table, statusError(422), permanent},
		{"a verb before the table", table, redrive.Permanent(statusError(503)), permanent},
		{"the table under a floor", table, redrive.RetryAfter(statusError(409), time.Minute), redrive.Classification{Class: redrive.ClassPermanent, Reason: redrive.ReasonPermanent, After: time.Minute}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := redrive.Classify(c.c, c.err); got != c.want {
				t.Errorf("%+v, want %+v", got, c.want)
			}
		})
	}
}

func TestVerbsOfNothingAreNothing(t *testing.T) {
	for name, err := range map[string]error{
		"Permanent": redrive.Permanent(nil), "DeadLetter": redrive.DeadLetter(nil, redrive.ReasonManual), "RetryAfter": redrive.RetryAfter(nil, 1),
		"Release": redrive.Release(nil, 1), "Pause": redrive.Pause(nil, 1), "Disable": redrive.Disable(nil),
	} {
		if err != nil {
			t.Errorf("%s(nil) is %v", name, err)
		}
	}
	if err := redrive.RepeatAfter(1); err == nil || err.Error() == "" {
		t.Errorf("RepeatAfter is %v", err)
	}
}

func TestVerbsKeepTheirError(t *testing.T) {
	for _, err := range []error{redrive.Permanent(fs.ErrNotExist), redrive.RetryAfter(fs.ErrNotExist, 1), redrive.Release(fs.ErrNotExist, 1)} {
		if !errors.Is(err, fs.ErrNotExist) || err.Error() != fs.ErrNotExist.Error() {
			t.Errorf("%v", err)
		}
	}
}

func TestTableMatchers(t *testing.T) {
	for _, c := range []struct {
		matcher string
		err     error
		want    bool
	}{
		{"5xx", statusError(503), true},
		{"5xx", statusError(404), false},
		{"5xx", errors.New("5xx"), false},
		{"404", statusError(404), true},
		{"404", statusError(40), false},
		{"timeout", context.DeadlineExceeded, true},
		{"timeout", errors.New("timeout"), false},
		{"type:*ValidationError", &ValidationError{}, true},
		{"type:*redrive_test.ValidationError", &ValidationError{}, true},
		{"type:redrive_test.statusError", statusError(1), true},
		{"type:*redrive_test*", statusError(1), true},
		{"type:redrive_test.*", statusError(1), true},
		{"type:*", errors.New("x"), true},
		{"type:*Other", &ValidationError{}, false},
		{"type:ValidationError", &ValidationError{}, false},
	} {
		table := redrive.Table{Permanent: []string{c.matcher}}
		if err := table.Check(); err != nil {
			t.Errorf("%s: %v", c.matcher, err)
		}
		if _, got := table.Classify(c.err); got != c.want {
			t.Errorf("%s and %T %v: %v", c.matcher, c.err, c.err, got)
		}
	}
	for _, m := range []string{"", "4", "4x", "99x", "999", "abc", "+12", "Timeout", "5XX", "xx5"} {
		if err := (&redrive.Table{Release: []string{m}}).Check(); !errors.Is(err, redrive.ErrInvalid) {
			t.Errorf("%q: %v", m, err)
		}
	}
}
