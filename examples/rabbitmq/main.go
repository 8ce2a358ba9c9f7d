// Command rabbitmq shows a queue of RabbitMQ beneath the engine: a program that knows
// nothing of Redrive publishes there, one message fails, is found with its failure history beside
// the broker, and is redriven.
//
//	go run ./examples/rabbitmq 'rabbitmq://guest:guest@localhost:5672/?queue=sms&declare=true'
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/backend/rabbitmq"
	"github.com/redrive/redrive/backend/sqlite"
	"github.com/redrive/redrive/deadletter"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/engine"
)

// SendSMS asks for one text message.
type SendSMS struct {
	To string `json:"to"`
}

var errNumber = errors.New("this is not a telephone number")

func main() {
	if len(os.Args) != 2 {
		log.Fatal("name a queue: rabbitmq://guest:guest@localhost:5672/?queue=sms&declare=true")
	}
	dir, err := os.MkdirTemp("", "redrive-example-*")
	if err != nil {
		log.Fatal(err)
	}
	err = run(context.Background(), os.Args[1], dir, os.Stdout)
	if rmErr := os.RemoveAll(dir); err == nil {
		err = rmErr
	}
	if err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, address, dir string, out io.Writer) error {
	store, err := sqlite.Open(dir) // what fails is parked here
	if err != nil {
		return err
	}
	defer store.Close() //nolint:errcheck // everything that was parked is synced
	queue, err := rabbitmq.Open(ctx, address, rabbitmq.Options{Queue: "sms"})
	if err != nil {
		return err
	}
	defer queue.Close() //nolint:errcheck // what is not settled comes again

	sent := make(chan string)
	var mended atomic.Bool // between the first delivery and the redrive
	mux := redrive.NewMux()
	redrive.Handle(mux, func(ctx context.Context, m SendSMS) error {
		if !strings.HasPrefix(m.To, "+") && !mended.Load() {
			return redrive.Permanent(fmt.Errorf("%w: %q", errNumber, m.To))
		}
		select {
		case sent <- m.To:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}, redrive.ForKind(""))
	eng := engine.New(store, engine.Options{})
	if err := eng.Handle("sms", mux, engine.QueueOptions{Sources: []driver.Source{queue}, Concurrency: 1}); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- eng.Run(ctx) }()

	err = repair(ctx, store, queue, sent, &mended, out)
	cancel()
	return errors.Join(err, <-ended)
}

// repair publishes two messages and follows the one that fails.
func repair(ctx context.Context, store driver.Store, queue redrive.Sink, sent <-chan string, mended *atomic.Bool, out io.Writer) error {
	// Any program may publish there; this one is at hand.
	msgs := []redrive.Message{{Queue: "sms", Body: []byte(`{"to":"0049 30 123456"}`)}, {Queue: "sms", Body: []byte(`{"to":"+4930123456"}`)}}
	if err := driver.FirstError(queue.Publish(ctx, msgs)); err != nil {
		return err
	}
	fmt.Fprintln(out, "sent to", <-sent)
	dead, err := theDead(ctx, store)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "dead (%s): %s\n", dead.Reason, dead.History.Latest().Message)
	mended.Store(true)
	if err := deadletter.Redrive(ctx, store, dead.Ref()); err != nil {
		return err
	}
	fmt.Fprintln(out, "redriven, sent to", <-sent)
	return nil
}

// theDead waits for the dead letter.
func theDead(ctx context.Context, store driver.Store) (*redrive.Entry, error) {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		page, err := store.Find(ctx, redrive.Query{Queue: "sms", State: redrive.StateDead})
		if err != nil {
			return nil, err
		}
		if len(page.Entries) > 0 {
			whole, err := store.Get(ctx, []redrive.Ref{page.Entries[0].Ref()}) // with its failure history
			if err != nil {
				return nil, err
			}
			return whole[0], nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}
