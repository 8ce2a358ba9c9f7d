package guard_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/backend/memory"
	"github.com/redrive/redrive/engine"
	"github.com/redrive/redrive/guard"
)

// A request is put off while its provider is isolated. Its ticket tells the later
// result.
func Example() {
	type message struct{ To, Text string }
	send := func(_ context.Context, m message) (string, error) { return "accepted for " + m.To, nil }

	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	store := memory.New()
	g, err := guard.New(guard.Config[message, string]{
		Name:      "sms",
		Providers: []guard.Provider[message, string]{{Name: "north", Call: send, Timeout: 5 * time.Second}},
		Store:     store,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	go func() { _ = g.Run(ctx) }()
	go func() { _ = engine.Run(ctx, store, "sms", g, g.QueueOptions()) }()

	res, err := g.Do(ctx, message{To: "+49301234567", Text: "hello"})
	fmt.Println(res.Value, err)

	if err := g.Force("north", guard.Isolated, 100*time.Millisecond); err != nil {
		fmt.Println(err)
		return
	}
	res, err = g.Do(ctx, message{To: "+49307654321", Text: "hello"})
	if err != nil || !res.Deferred() {
		fmt.Println("not put off:", err)
		return
	}
	later, err := res.Ticket.Wait(ctx)
	fmt.Println("later:", later.Value, err)
	// Output:
	// accepted for +49301234567 <nil>
	// later: accepted for +49307654321 <nil>
}

// Without a queue a guard is a circuit breaker with failover.
func ExampleGuard_Do_withoutQueue() {
	broken := func(context.Context, int) (int, error) {
		return 0, &guard.RateLimitError{After: time.Second}
	}
	double := func(_ context.Context, n int) (int, error) { return 2 * n, nil }
	g, err := guard.New(guard.Config[int, int]{Name: "math", Providers: []guard.Provider[int, int]{
		{Name: "first", Call: broken}, {Name: "second", Call: double}}})
	if err != nil {
		fmt.Println(err)
		return
	}
	res, err := g.Do(context.Background(), 21)
	fmt.Println(res.Value, res.Provider, err)
	_ = g.Force("second", guard.Isolated, time.Minute)
	_, err = g.Do(context.Background(), 21)
	fmt.Println(errors.Is(err, guard.ErrUnavailable))
	// Output:
	// 42 second <nil>
	// true
}

// A call says what its provider meant: that it asks for less, that the request itself is at fault,
// or, by the provider's Classify, what only its answers tell.
func ExampleClassifier() {
	type answer struct{ Code string }
	send := func(_ context.Context, to string) (answer, error) {
		switch to {
		case "": // the next provider would refuse it, too
			return answer{}, redrive.Permanent(errors.New("no number"))
		case "busy":
			return answer{}, &guard.RateLimitError{After: 2 * time.Second, Err: errors.New("30 a second")}
		}
		return answer{Code: "E-MAINTENANCE"}, nil
	}
	classify := func(a answer, err error) (guard.Outcome, bool) {
		if a.Code == "E-MAINTENANCE" { // an answer without an error, and nothing was sent
			return guard.Outcome{Class: guard.ClassTransient, Effect: guard.NoEffect, Reason: "maintenance"}, true
		}
		return guard.Outcome{}, false // to guard.Classify
	}
	g, err := guard.New(guard.Config[string, answer]{Name: "sms", Providers: []guard.Provider[string, answer]{
		{Name: "north", Call: send, Classify: classify}}})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, to := range []string{"", "+49301234567", "busy"} {
		_, err := g.Do(context.Background(), to)
		fmt.Println(err)
	}
	// Output:
	// no number
	// no provider available
	// maintenance
	// no provider available
	// the provider asks for less, again in 2s: 30 a second
}
