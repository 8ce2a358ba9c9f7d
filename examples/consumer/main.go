// Command consumer shows the library: a typed handler over the embedded store, a
// message that cannot be delivered, its failure history, and its redrive.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"strings"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/backend/sqlite"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/engine"
)

// SendSMS asks for one text message.
type SendSMS struct {
	To   string `json:"to"`
	Text string `json:"text"`
}

// Kind names the type of the message; a handler is registered for it.
func (SendSMS) Kind() string { return "sms.send" }

var errNumber = errors.New("this is not a telephone number")

func main() {
	dir, err := os.MkdirTemp("", "redrive-example-*")
	if err != nil {
		log.Fatal(err)
	}
	err = run(context.Background(), dir, os.Stdout)
	if rmErr := os.RemoveAll(dir); err == nil {
		err = rmErr
	}
	if err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, dir string, out io.Writer) error {
	store, err := sqlite.Open(dir)
	if err != nil {
		return err
	}
	defer store.Close() //nolint:errcheck // everything that was published is synced

	// The handler. An error is retried with a growing delay; Permanent says that
	// retrying cannot help.
	sent := make(chan string)
	mux := redrive.NewMux()
	redrive.Handle(mux, func(ctx context.Context, m SendSMS) error {
		if !strings.HasPrefix(m.To, "+") {
			return redrive.Permanent(fmt.Errorf("%w: %q", errNumber, m.To))
		}
		select {
		case sent <- m.To:
		case <-ctx.Done():
		}
		return ctx.Err()
	})
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	consumed := make(chan error, 1)
	go func() { consumed <- engine.Run(ctx, store, "sms", mux) }()

	// Publish returns when the message is on the disk.
	for _, to := range []string{"+4930123456", "0049 30 123456"} {
		if err := redrive.Publish(ctx, store, "sms", SendSMS{To: to, Text: "Your parcel is here"}); err != nil {
			return err
		}
	}
	fmt.Fprintln(out, "sent to", <-sent)

	// The other one is a dead letter, with its failure history.
	dead, err := waitForDead(ctx, store)
	if err != nil {
		return err
	}
	failure := dead.History.Latest()
	fmt.Fprintf(out, "dead (%s): %s\n", dead.Reason, failure.Message)

	// Repair it and give it another life, in one step.
	fixed := []byte(`{"to": "+4930123456", "text": "Your parcel is here"}`)
	changed, err := store.Update(ctx, driver.Selection{Refs: []redrive.Ref{dead.Ref()}},
		driver.Change{Action: driver.ActRedrive, Edit: &redrive.Edit{Body: fixed}}, 1)
	if err != nil {
		return err
	}
	if changed[0].Err != nil {
		return changed[0].Err
	}
	fmt.Fprintln(out, "redriven, sent to", <-sent)

	stop() // what is in flight is finished first
	return <-consumed
}

// waitForDead returns the first dead letter of the queue.
func waitForDead(ctx context.Context, store driver.Store) (*redrive.Entry, error) {
	for {
		page, err := store.Find(ctx, redrive.Query{Queue: "sms", State: redrive.StateDead, Bodies: true})
		if err != nil {
			return nil, err
		}
		if len(page.Entries) > 0 {
			return &page.Entries[0], nil
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}
