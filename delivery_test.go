package redrive_test

import (
	"encoding"
	"errors"
	"testing"

	"pgregory.net/rapid"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/plan"
)

func TestReceiptAsText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := redrive.Receipt{
			Ref:      redrive.Ref{Queue: rapid.String().Draw(t, "queue"), ID: rapid.String().Draw(t, "id")},
			Token:    rapid.Uint64().Draw(t, "token"),
			Position: string(rapid.SliceOf(rapid.Byte()).Draw(t, "position")),
		}
		text, err := r.MarshalText()
		if err != nil {
			t.Fatal(err)
		}
		var back redrive.Receipt
		if err := back.UnmarshalText(text); err != nil || back != r {
			t.Fatalf("%+v came back as %+v, %v", r, back, err)
		}
	})
}

func FuzzReceipt(f *testing.F) {
	text, _ := redrive.Receipt{Ref: redrive.Ref{Queue: "q", ID: "m"}, Token: 7, Position: "p"}.MarshalText()
	f.Add(text)
	f.Add([]byte(""))
	f.Add([]byte("____"))
	f.Fuzz(func(t *testing.T, text []byte) {
		var r redrive.Receipt
		if err := r.UnmarshalText(text); err != nil {
			if !errors.Is(err, redrive.ErrInvalid) {
				t.Error(err)
			}
			return
		}
		again, err := r.MarshalText()
		var back redrive.Receipt
		if err != nil || back.UnmarshalText(again) != nil || back != r {
			t.Errorf("%+v does not survive", r)
		}
	})
}

// enumeration is one of our enumerations.
type enumeration interface {
	comparable
	encoding.TextMarshaler
}

// survives checks that every value survives its text, and that nothing else does.
func survives[T enumeration, P interface {
	*T
	encoding.TextUnmarshaler
}](t *testing.T, values ...T) {
	t.Helper()
	seen := make(map[string]bool)
	for _, v := range values {
		text, err := v.MarshalText()
		if err != nil || len(text) == 0 || seen[string(text)] {
			t.Errorf("%T %v: %q, %v", v, v, text, err)
		}
		seen[string(text)] = true
		var back T
		if err := P(&back).UnmarshalText(text); err != nil || back != v {
			t.Errorf("%T %q came back as %v, %v", v, text, back, err)
		}
	}
	var v T
	if err := P(&v).UnmarshalText([]byte("nonsense")); !errors.Is(err, redrive.ErrInvalid) {
		t.Errorf("%T nonsense: %v", v, err)
	}
}

func TestEnumerationsAsText(t *testing.T) {
	survives(t, redrive.LaneFresh, redrive.LaneRetry, redrive.LaneRedrive)
	survives(t, redrive.StateWaiting, redrive.StateLeased, redrive.StateBlocked, redrive.StateDead)
	survives(t, redrive.OutcomeDone, redrive.OutcomeRetry, redrive.OutcomeRelease, redrive.OutcomeDead, redrive.OutcomeRepeat, redrive.OutcomeDrop)
	survives(t, driver.ActRedrive, driver.ActDrop, driver.ActArchive, driver.ActKill, driver.ActEdit, driver.ActDueNow)
	survives(t, plan.Running, plan.Paused, plan.Done, plan.Cancelled, plan.Failed)
	survives(t, redrive.Reasons()...)
	if n := len(redrive.Reasons()); n != 13 {
		t.Errorf("%d reasons, the set is closed at 13", n)
	}
}

func TestOutcomeTerminal(t *testing.T) {
	for o, want := range map[redrive.Outcome]bool{redrive.OutcomeDone: true, redrive.OutcomeRetry: false, redrive.OutcomeRelease: false,
		redrive.OutcomeDead: true, redrive.OutcomeRepeat: true, redrive.OutcomeDrop: true} {
		if o.Terminal() != want {
			t.Errorf("%s: %v", o, !want)
		}
	}
}
