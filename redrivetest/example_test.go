package redrivetest_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/redrivetest"
)

// A test of a handler that is rate-limited at first: it is tried again when the provider
// says so, although the test takes no time.
func Example() {
	_ = func(t *testing.T) {
		calls := 0
		mux := redrive.NewMux()
		redrive.Handle(mux, func(context.Context, json.RawMessage) error {
			if calls++; calls == 1 {
				return redrive.RetryAfter(errors.New("slow down"), 10*time.Minute)
			}
			return nil
		}, redrive.ForKind("sms.send"), redrive.WithPolicy(redrive.Policy{MaxAttempts: 3}))
		r := redrivetest.Run(t, redrive.Message{Kind: "sms.send", Body: []byte(`{"to": "+49..."}`)}, mux)
		if r.Outcome != redrive.OutcomeDone || r.Attempts[1].At < 10*time.Minute {
			t.Errorf("%+v", r)
		}
	}
	// Output:
}
