package deadletter_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/deadletter"
	"github.com/redrive/redrive/internal/deadtest"
)

func TestRedrive(t *testing.T) {
	deadtest.Run(t, func(m *deadtest.Store) {
		m.Kill("q", 450, nil) // more than one step
		m.Kill("q", 1, func(e *redrive.Entry) { e.Reason = redrive.ReasonUncertain })
		page, err := m.Store.Find(context.Background(), redrive.Query{Queue: "q", Limit: redrive.MaxPage})
		if err != nil {
			t.Fatal(err)
		}
		refs := []redrive.Ref{{Queue: "q", ID: "nobody"}}
		for _, e := range page.Entries {
			refs = append(refs, e.Ref())
		}
		refs = append(refs, refs[1])
		err = deadletter.Redrive(context.Background(), m.Store, refs...)
		for _, want := range []error{redrive.ErrNotFound, redrive.ErrState, redrive.ErrUncertain} {
			if !errors.Is(err, want) {
				t.Errorf("%v is not named: %v", want, err)
			}
		}
		if errors.Is(err, redrive.ErrLoop) || !strings.HasPrefix(err.Error(), "redrive: 3 of 453 messages refused: q/nobody: not found; ") {
			t.Errorf("%v", err)
		}
		if dead, redrives := m.Left("q"); dead != 1 || redrives[1] != 450 {
			t.Errorf("%d are dead; redriven: %v", dead, redrives)
		}
	})
}

func TestRedriveReturnsTheStoresFault(t *testing.T) {
	deadtest.Run(t, func(m *deadtest.Store) {
		m.Kill("q", 1, nil)
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if err := deadletter.Redrive(ctx, m.Store, redrive.Ref{Queue: "q", ID: "m00001"}); !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
		if err := deadletter.Redrive(ctx, m.Store); err != nil {
			t.Errorf("of nothing: %v", err)
		}
	})
}

// What cannot be redriven, and why, is in one error.
func TestRedriveNamesWhatWasRefused(t *testing.T) {
	deadtest.Run(t, func(m *deadtest.Store) {
		m.Kill("q", 1, func(e *redrive.Entry) { e.Headers.Add(redrive.HeaderBodyGone, "1") })
		err := deadletter.Redrive(context.Background(), m.Store, redrive.Ref{Queue: "q", ID: "m00001"})
		var e *redrive.Error
		if !errors.Is(err, redrive.ErrBodyGone) || !errors.As(err, &e) || e.Queue != "q" || e.ID != "m00001" || e.Op != "redrive" {
			t.Errorf("%v", err)
		}
	})
}
