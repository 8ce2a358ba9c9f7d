package redrive_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"testing"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
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
	transient := driver.Classification{Outcome: redrive.OutcomeRetry}
	permanent := driver.Classification{Outcome: redrive.OutcomeDead, Reason: redrive.ReasonPermanent}
	for _, c := range []struct {
		name string
		c    redrive.Classifier
		err  error
		want driver.Classification
	}{
		{"anything", nil, base, transient},
		{"a timeout", nil, context.DeadlineExceeded, transient},
		{"permanent", nil, redrive.Permanent(base), permanent},
		{"permanent, wrapped", nil, fmt.Errorf("sending: %w", redrive.Permanent(base)), permanent},
		{"permanent, joined", nil, errors.Join(base, redrive.Permanent(base)), permanent},
		{"a reason", nil, redrive.PermanentAs(base, redrive.ReasonRejected), driver.Classification{Outcome: redrive.OutcomeDead, Reason: redrive.ReasonRejected}},
		{"retry after", nil, redrive.RetryAfter(base, time.Minute), driver.Classification{Outcome: redrive.OutcomeRetry, After: time.Minute}},
		{"retry after a negative time", nil, redrive.RetryAfter(base, -1), transient},
		{"release", nil, redrive.Uncounted(base, time.Second), driver.Classification{Outcome: redrive.OutcomeRelease, After: time.Second}},
		{"pause", nil, redrive.TargetDown(base, time.Second), driver.Classification{Outcome: redrive.OutcomeRelease, After: time.Second}},
		{"disable", nil, redrive.TargetGone(base), driver.Classification{Outcome: redrive.OutcomeDead, Reason: redrive.ReasonDisabled}},
		{"repeat", nil, redrive.RepeatAfter(time.Hour), driver.Classification{Outcome: redrive.OutcomeRepeat, After: time.Hour, Request: true}},
		{"snooze", table, redrive.Snooze(time.Hour), driver.Classification{Outcome: redrive.OutcomeRelease, After: time.Hour, Request: true}},
		{"a body that does not decode", nil, fmt.Errorf("x: %w", &redrive.DecodeError{Kind: "k", Err: base}), driver.Classification{Outcome: redrive.OutcomeDead, Reason: redrive.ReasonUndecodable}},
		{"400", nil, statusError(400), permanent},
		{"404", nil, fmt.Errorf("x: %w", statusError(404)), permanent},
		{"413", nil, statusError(413), driver.Classification{Outcome: redrive.OutcomeDead, Reason: redrive.ReasonOversize}},
		{"422", nil, statusError(422), permanent},
		{"401", nil, statusError(401), transient},
		{"408", nil, statusError(408), transient},
		{"429", nil, statusError(429), transient},
		{"500", nil, statusError(500), transient},
		{"the table: permanent", table, statusError(409), permanent},
		{"the table: release", table, statusError(503), driver.Classification{Outcome: redrive.OutcomeRelease}},
		{"the table: transient", table, statusError(404), transient},
		{"the table: a type", table, fmt.Errorf("x: %w", &ValidationError{}), permanent},
		{"the table: no opinion", table, statusError(422), permanent},
		{"a verb before the table", table, redrive.Permanent(statusError(503)), permanent},
		{"the table under a floor", table, redrive.RetryAfter(statusError(409), time.Minute), driver.Classification{Outcome: redrive.OutcomeDead, Reason: redrive.ReasonPermanent, After: time.Minute}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := driver.Classify(c.c, c.err); got != c.want {
				t.Errorf("%+v, want %+v", got, c.want)
			}
		})
	}
}

// A nil error would complete the message, which no verb means.
func TestVerbsWithoutAnErrorAreErrors(t *testing.T) {
	for name, err := range map[string]error{
		"Permanent": redrive.Permanent(nil), "PermanentAs": redrive.PermanentAs(nil, redrive.ReasonManual), "RetryAfter": redrive.RetryAfter(nil, 1),
		"Uncounted": redrive.Uncounted(nil, 1), "TargetDown": redrive.TargetDown(nil, 1), "TargetGone": redrive.TargetGone(nil),
	} {
		if err == nil || err.Error() != "redrive."+name+": no error given" {
			t.Errorf("%s(nil) is %v", name, err)
		}
	}
	for want, err := range map[redrive.Outcome]error{
		redrive.OutcomeRepeat: redrive.RepeatAfter(time.Hour), redrive.OutcomeRelease: fmt.Errorf("wrapped: %w", redrive.Snooze(time.Hour)), 0: redrive.ErrSettled,
	} {
		if got, asked := driver.Asked(err); !asked || got != want {
			t.Errorf("%v asks for %s, %v", err, got, asked)
		}
	}
	for _, err := range []error{nil, redrive.Permanent(nil), redrive.Uncounted(errors.New("x"), 0)} {
		if _, asked := driver.Asked(err); asked {
			t.Errorf("%v is taken for a request", err)
		}
	}
}

func TestVerbsKeepTheirError(t *testing.T) {
	for _, err := range []error{redrive.Permanent(fs.ErrNotExist), redrive.RetryAfter(fs.ErrNotExist, 1), redrive.Uncounted(fs.ErrNotExist, 1)} {
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
		if got := table.Classify(c.err) != nil; got != c.want {
			t.Errorf("%s and %T %v: %v", c.matcher, c.err, c.err, got)
		}
	}
	for _, m := range []string{"", "4", "4x", "99x", "999", "abc", "+12", "Timeout", "5XX", "xx5"} {
		if err := (&redrive.Table{Release: []string{m}}).Check(); !errors.Is(err, redrive.ErrInvalid) {
			t.Errorf("%q: %v", m, err)
		}
	}
}
