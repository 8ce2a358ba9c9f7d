// Command kafka shows the library on a topic: orders that another program published, one
// of which cannot be handled, its failure history, and its redrive. The store beside the topic keeps
// what failed.
//
//	go run ./examples/kafka localhost:9092 orders
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/backend/kafka"
	"github.com/redrive/redrive/backend/sqlite"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/engine"
)

// Order is what the other program writes.
type Order struct {
	Number   int    `json:"number"`
	Customer string `json:"customer"`
}

func main() {
	if len(os.Args) != 3 {
		log.Fatal("usage: kafka BROKER TOPIC")
	}
	dir, err := os.MkdirTemp("", "redrive-example-*")
	if err != nil {
		log.Fatal(err)
	}
	err = run(context.Background(), os.Args[1], os.Args[2], dir, os.Stdout)
	if rmErr := os.RemoveAll(dir); err == nil {
		err = rmErr
	}
	if err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, broker, topic, dir string, out io.Writer) error {
	if err := order(ctx, broker, topic); err != nil {
		return err
	}
	store, err := sqlite.Open(dir)
	if err != nil {
		return err
	}
	defer store.Close() //nolint:errcheck // everything that was parked is synced
	source, err := kafka.Open(ctx, "kafka://"+broker+"/"+topic+"?group=billing", kafka.Options{Queue: "orders"})
	if err != nil {
		return err
	}
	defer source.Close() //nolint:errcheck // what was settled is committed

	// The handler. Records of others have no kind.
	billed := make(chan Order)
	mux := redrive.NewMux()
	redrive.Handle(mux, func(ctx context.Context, o Order) error {
		if o.Customer == "" {
			return redrive.Permanent(fmt.Errorf("order %d has no customer", o.Number))
		}
		select {
		case billed <- o:
		case <-ctx.Done():
		}
		return ctx.Err()
	}, redrive.ForKind(""))
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	consumed := make(chan error, 1)
	go func() {
		consumed <- engine.Run(ctx, store, "orders", mux, engine.QueueOptions{Sources: []driver.Source{source}})
	}()
	o := <-billed
	fmt.Fprintf(out, "billed order %d of %s\n", o.Number, o.Customer)

	// The other one stands in the store, with the place where it was and why it failed.
	dead, err := waitForDead(ctx, store)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "dead (%s) from %s: %s\n", dead.Reason, dead.Origin, dead.History.Latest().Message)

	// Repair it and give it another life, in one step.
	changed, err := store.Update(ctx, driver.Selection{Refs: []redrive.Ref{dead.Ref()}},
		driver.Change{Action: driver.ActRedrive, Edit: &redrive.Edit{Body: []byte(`{"number":2,"customer":"Grete"}`)}}, 1)
	if err == nil {
		err = changed[0].Err
	}
	if err != nil {
		return err
	}
	o = <-billed
	fmt.Fprintf(out, "redriven, billed order %d of %s\n", o.Number, o.Customer)

	stop() // what is in flight is finished and committed first
	return <-consumed
}

// order plays the other program, which knows nothing of Redrive.
func order(ctx context.Context, broker, topic string) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(broker), kgo.DefaultProduceTopic(topic))
	if err != nil {
		return err
	}
	defer client.Close()
	return client.ProduceSync(ctx,
		&kgo.Record{Key: []byte("hans"), Value: []byte(`{"number":1,"customer":"Hans"}`)},
		&kgo.Record{Key: []byte("grete"), Value: []byte(`{"number":2}`)}).FirstErr()
}

// waitForDead returns the first dead letter of the queue.
func waitForDead(ctx context.Context, store driver.Store) (*redrive.Entry, error) {
	for {
		page, err := store.Find(ctx, redrive.Query{Queue: "orders", State: redrive.StateDead, Bodies: true})
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
