package redrivetest

import (
	"context"
	"fmt"
	"testing"

	"github.com/redrive/redrive"
)

// failing is a test that notes why it failed.
type failing struct {
	testing.TB
	why string
}

func (*failing) Helper() {}

func (f *failing) Fatalf(format string, args ...any) { f.why = fmt.Sprintf(format, args...) }

func TestUnknownKindFailsTheTest(t *testing.T) {
	mux := redrive.NewMux()
	redrive.Handle(mux, "sms.send", func(context.Context, string) error { return nil })
	for kind, want := range map[string]string{"sms.send": "", "sms.sent": `no handler for kind "sms.sent"; there are handlers for ["sms.send"]`} {
		f := new(failing)
		if requireKind(f, mux, kind); f.why != want {
			t.Errorf("%q, want %q", f.why, want)
		}
	}
	mux.Fallback(redrive.HandlerFunc(func(context.Context, *redrive.Delivery) error { return nil }))
	f := new(failing)
	if requireKind(f, mux, "sms.sent"); f.why != "" {
		t.Errorf("with a fallback: %q", f.why)
	}
}
