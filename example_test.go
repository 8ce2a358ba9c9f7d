package redrive_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/backend/memory"
	"github.com/redrive/redrive/deadletter"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/engine"
)

type SendMail struct {
	To string `json:"to"`
}

func (SendMail) Kind() string { return "mail.send" }

// A message is published, handled, dead-lettered because it cannot succeed, and redriven
// once its cause is mended.
func Example() {
	store := memory.New() // sqlite.Open("./redrive-data") keeps what it accepts
	defer store.Close()

	mended := false
	ended := make(chan struct{})
	mux := redrive.NewMux()
	redrive.Handle(mux, func(_ context.Context, m SendMail) error { // of kind mail.send
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

// Consume works on a queue until its context ends. The long form is engine.New,
// Engine.Handle for each queue, and Engine.Run; it takes the same options.
func Example_consume() {
	store := memory.New()
	defer store.Close()
	ctx, stop := context.WithCancel(context.Background())
	mux := redrive.NewMux()
	redrive.Handle(mux, func(ctx context.Context, m SendMail) error {
		defer stop()
		d, _ := redrive.DeliveryFrom(ctx)
		fmt.Println("attempt", d.Attempt, "of", d.Kind, "to", m.To)
		return redrive.Emit(ctx, redrive.Message{Queue: "sent", Body: []byte(m.To)}) // with the settlement, or not at all
	})
	if err := redrive.Publish(ctx, store, "mail", SendMail{To: "jane@example.com"}); err != nil {
		fmt.Println(err)
	}
	err := engine.Run(ctx, store, "mail", mux,
		engine.Options{Service: "mailer", Logger: slog.Default()},
		engine.QueueOptions{Concurrency: 8, Policies: engine.Policies{Default: redrive.Policy{
			MaxAttempts: 10,
			Backoff:     redrive.Exponential{Base: time.Second, Max: time.Minute, Jitter: redrive.JitterEqual},
			Classifier:  &redrive.Table{Permanent: []string{"404", "type:*ParseError"}},
		}}})
	if err != nil {
		fmt.Println(err)
	}
	page, err := store.Find(context.Background(), redrive.Query{Queue: "sent", Bodies: true})
	if err != nil {
		fmt.Println(err)
	}
	fmt.Printf("emitted: %s\n", page.Entries[0].Body)
	// Output:
	// attempt 1 of mail.send to jane@example.com
	// emitted: jane@example.com
}

// A dead letter is repaired and redriven.
func Example_redrive() {
	store := memory.New()
	defer store.Close()
	ctx := context.Background()
	mux := redrive.NewMux()
	sent := make(chan string)
	redrive.Handle(mux, func(_ context.Context, m SendMail) error {
		defer func() { sent <- m.To }()
		if !strings.Contains(m.To, "@") {
			return redrive.PermanentAs(errors.New("no address"), redrive.ReasonUnroutable)
		}
		return nil
	})
	consume := func() {
		ctx, stop := context.WithCancel(ctx)
		done := make(chan error)
		go func() { done <- engine.Run(ctx, store, "mail", mux) }()
		fmt.Println("tried:", <-sent)
		stop()
		<-done
	}
	if err := redrive.Publish(ctx, store, "mail", SendMail{To: "bob"}, redrive.WithID("m-1")); err != nil {
		fmt.Println(err)
	}
	consume()

	bob := redrive.Ref{Queue: "mail", ID: "m-1"}
	repair := driver.Change{Action: driver.ActEdit, Edit: &redrive.Edit{Body: []byte(`{"to": "bob@example.com"}`)}}
	if _, err := store.Update(ctx, driver.Selection{Refs: []redrive.Ref{bob}}, repair, 1); err != nil {
		fmt.Println(err)
	}
	if err := deadletter.Redrive(ctx, store, bob); err != nil {
		fmt.Println(err)
	}
	consume()
	// Output:
	// tried: bob
	// tried: bob@example.com
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

// The type names the kind. Policy, timeout and concurrency stand beside the handler, and
// by its error a handler says what shall become of the message.
func ExampleHandle() {
	errBusy, errGone := errors.New("busy"), errors.New("gone")
	mux := redrive.NewMux()
	redrive.Handle(mux, func(_ context.Context, m SendMail) error {
		switch m.To {
		case "gone@example.com":
			return redrive.Permanent(errGone) // a dead letter at once
		case "busy@example.com":
			return redrive.RetryAfter(errBusy, 30*time.Second) // not before
		case "later@example.com":
			return redrive.Snooze(time.Hour) // no failure; the attempt does not count
		case "odd@example.com":
			return errors.New("who knows") // retried by the policy
		}
		return nil
	},
		redrive.ForKind("mail"), // as it was called before
		redrive.WithPolicy(redrive.Policy{MaxAttempts: 5, Backoff: redrive.Schedule{time.Second, time.Minute, time.Hour}}),
		redrive.WithTimeout(10*time.Second),
		redrive.WithConcurrency(4))
	redrive.Handle(mux, func(_ context.Context, body []byte) error { return nil }, redrive.ForKind("raw"))

	kinds, _ := mux.Kinds()
	fmt.Println(kinds, mux.Err())
	for _, to := range []string{"gone", "busy", "later", "odd"} {
		d := redrive.Delivery{Message: redrive.Message{Kind: "mail.send", Body: []byte(`{"to": "` + to + `@example.com"}`)}}
		c := driver.Classify(nil, mux.ServeDelivery(context.Background(), &d))
		fmt.Println(to, c.Outcome, c.Reason, c.After)
	}
	// Output:
	// [mail mail.send raw] <nil>
	// gone dead permanent 0s
	// busy retry  30s
	// later release  1h0m0s
	// odd retry  0s
}
