package redrive_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/backend/memory"
	"github.com/redrive/redrive/deadletter"
	"github.com/redrive/redrive/engine"
	"github.com/redrive/redrive/middleware"
)

type SendMail struct {
	To string `json:"to"`
}

func (SendMail) Kind() string { return "mail.send" }

// A message is published, handled, set aside because it cannot succeed, and redriven
// once its cause is mended.
func Example() {
	store := memory.New() // sqlite.Open("./redrive-data") keeps what it accepts
	defer store.Close()

	mended := false
	ended := make(chan struct{})
	mux := redrive.NewMux()
	redrive.Handle(mux, "mail.send", func(_ context.Context, m SendMail) error {
		defer func() { ended <- struct{}{} }()
		if !mended && !strings.Contains(m.To, "@") {
			return redrive.Permanent(errors.New("no address: " + m.To))
		}
		fmt.Println("sent to", m.To)
		return nil
	})

	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- engine.Run(ctx, store, "mail", mux) }()

	for _, to := range []string{"jane@example.com", "bob"} {
		if err := redrive.Publish(ctx, store, "mail", SendMail{To: to}); err != nil {
			fmt.Println(err)
		}
		<-ended
	}
	stop()
	if err := <-done; err != nil { // everything is settled now
		fmt.Println(err)
	}

	page, err := store.Find(context.Background(), redrive.Query{Queue: "mail", State: redrive.StateDead, Bodies: true})
	if err != nil {
		fmt.Println(err)
	}
	for _, e := range page.Entries {
		fmt.Println("dead:", e.Reason, "-", e.History.Latest().Message)
		if err := deadletter.Redrive(context.Background(), store, e.Ref()); err != nil {
			fmt.Println(err)
		}
	}

	mended = true
	ctx, stop = context.WithCancel(context.Background())
	go func() { done <- engine.Run(ctx, store, "mail", mux) }()
	<-ended
	stop()
	<-done
	// Output:
	// sent to jane@example.com
	// dead: permanent - no address: bob
	// sent to bob
}

// An id that the caller chose makes publishing idempotent.
func ExamplePublish() {
	store := memory.New()
	defer store.Close()
	ctx := context.Background()
	for _, body := range []string{`{"order": 4711}`, `{"order": 4711}`, `{"order": 4712}`} {
		var before bool // only for those who want to know
		err := redrive.Publish(ctx, store, "orders", body,
			redrive.WithID("order-4711"),
			redrive.WithKind("order.placed"),
			redrive.WithKey("customer-17"),
			redrive.WithDelay(time.Minute),
			redrive.WithDuplicate(&before))
		fmt.Println(before, err)
	}
	// Output:
	// false <nil>
	// true <nil>
	// false publish orders/order-4711: conflict: another message with this id was accepted before
}

// A handler says by its error what shall become of the message.
func ExampleHandle() {
	errBusy, errGone := errors.New("busy"), errors.New("gone")
	mux := redrive.NewMux()
	redrive.Handle(mux, "mail.send", func(_ context.Context, m SendMail) error {
		switch m.To {
		case "gone@example.com":
			return redrive.Permanent(errGone) // a dead letter at once
		case "busy@example.com":
			return redrive.RetryAfter(errBusy, 30*time.Second) // not before
		case "odd@example.com":
			return errors.New("who knows") // retried by the policy
		}
		return nil
	})
	for _, to := range []string{"gone", "busy", "odd"} {
		d := redrive.Delivery{Message: redrive.Message{Kind: "mail.send", Body: []byte(`{"to": "` + to + `@example.com"}`)}}
		c := redrive.Classify(nil, mux.Handle(context.Background(), &d))
		fmt.Println(to, c.Class, c.Reason, c.After)
	}
	// Output:
	// gone permanent permanent 0s
	// busy transient  30s
	// odd transient  0s
}

// Middlewares wrap a handler; the first is the outermost.
func ExampleChain() {
	hello := func(h redrive.Handler) redrive.Handler {
		return redrive.HandlerFunc(func(ctx context.Context, d *redrive.Delivery) error {
			fmt.Println("before", d.ID)
			defer fmt.Println("after", d.ID)
			return h.Handle(ctx, d)
		})
	}
	h := middleware.Chain(redrive.HandlerFunc(func(_ context.Context, d *redrive.Delivery) error {
		fmt.Println("handling", d.ID)
		return nil
	}), hello, middleware.Timeout(time.Second))
	_ = h.Handle(context.Background(), &redrive.Delivery{Message: redrive.Message{ID: "m1"}})
	// Output:
	// before m1
	// handling m1
	// after m1
}
