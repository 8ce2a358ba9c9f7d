package deadletter_test

import (
	"context"
	"fmt"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/backend/memory"
	"github.com/redrive/redrive/deadletter"
	"github.com/redrive/redrive/driver"
)

// ExampleOnDead repairs what died of one known cause, and leaves the rest to people.
func ExampleOnDead() {
	store := memory.New()
	defer store.Close()
	ctx, cancel := context.WithCancel(context.Background())
	for id, reason := range map[string]redrive.Reason{"a": redrive.ReasonUndecodable, "b": redrive.ReasonManual} {
		e := redrive.Entry{Message: redrive.Message{Queue: "sms", ID: id, Body: []byte("broken")}, State: redrive.StateDead, Reason: reason}
		if _, err := store.Apply(ctx, driver.Batch{Put: []redrive.Entry{e}}); err != nil {
			panic(err)
		}
	}
	seen := 0
	err := deadletter.OnDead(ctx, store, "sms", func(_ context.Context, e *redrive.Entry) (deadletter.Decision, error) {
		if seen++; seen == 2 {
			defer cancel() // enough for an example
		}
		if e.Reason == redrive.ReasonUndecodable {
			return deadletter.Decision{Action: driver.ActRedrive, Edit: &redrive.Edit{Body: []byte("mended")}}, nil
		}
		return deadletter.Decision{}, nil // it stays
	})
	counts, _ := store.Counts(context.Background(), "sms")
	fmt.Println(err, counts[0].AllWaiting(), "waits again,", counts[0].AllDead(), "is left")
	// Output: <nil> 1 waits again, 1 is left
}
