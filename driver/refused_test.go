package driver_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

func TestRefused(t *testing.T) {
	named := func(errs ...error) error {
		return driver.Refused("redrive", len(errs), func(i int) (redrive.Ref, error) {
			return redrive.Ref{Queue: "q", ID: fmt.Sprint(i)}, errs[i]
		})
	}
	placed := &redrive.Error{Op: "publish", Queue: "q", ID: "0", Err: redrive.ErrInvalid, Hint: "mend it"}
	for _, c := range []struct {
		errs []error
		want string
	}{
		{nil, ""},
		{[]error{nil, nil}, ""},
		{[]error{nil, redrive.ErrNotFound}, "redrive q/1: not found"},
		{[]error{placed}, "publish q/0: invalid (mend it)"},
		{[]error{redrive.ErrNotFound, nil, redrive.ErrState}, "redrive: 2 of 3 messages refused: q/0: not found; q/2: the message's state does not allow this"},
		{[]error{redrive.ErrClosed, redrive.ErrClosed, redrive.ErrClosed, redrive.ErrClosed, redrive.ErrClosed, redrive.ErrClosed, redrive.ErrLoop},
			"redrive: 7 of 7 messages refused: q/0: closed; q/1: closed; q/2: closed; q/3: closed; q/4: closed; and 2 more"},
	} {
		err := named(c.errs...)
		if err == nil && c.want == "" {
			continue
		}
		if err == nil || err.Error() != c.want {
			t.Errorf("%v\n%v, want\n%s", c.errs, err, c.want)
			continue
		}
		for _, want := range c.errs {
			if want != nil && !errors.Is(err, want) {
				t.Errorf("%v hides %v", err, want)
			}
		}
		var e *redrive.Error
		if !errors.As(err, &e) || e.Queue != "q" {
			t.Errorf("%v has no place", err)
		}
	}
}
