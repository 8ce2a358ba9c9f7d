// Command jetstream consumes a stream of NATS JetStream: another program publishes
// orders, one of them cannot be handled, and its failure history is found and redriven from an
// embedded store.
//
//	nats-server -js
//	go run ./examples/jetstream nats://localhost:4222
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/backend/jetstream"
	"github.com/redrive/redrive/backend/sqlite"
	"github.com/redrive/redrive/deadletter"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/engine"
)

// Order is what the other program publishes, as JSON.
type Order struct {
	Number  int    `json:"number"`
	Address string `json:"address"`
}

var errAddress = errors.New("an order without an address")

func main() {
	server := "nats://localhost:4222"
	if len(os.Args) > 1 {
		server = os.Args[1]
	}
	dir, err := os.MkdirTemp("", "redrive-example-*")
	if err != nil {
		log.Fatal(err)
	}
	err = run(context.Background(), server, dir, os.Stdout)
	if rmErr := os.RemoveAll(dir); err == nil {
		err = rmErr
	}
	if err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, server, dir string, out io.Writer) error {
	if err := publishOrders(ctx, server); err != nil {
		return err
	}
	// The store keeps what the stream cannot: retries that wait, and dead letters.
	store, err := sqlite.Open(dir)
	if err != nil {
		return err
	}
	defer store.Close() //nolint:errcheck // everything that was parked is synced
	orders, err := jetstream.Open(ctx, server+"/ORDERS?consumer=shop", jetstream.Options{Queue: "orders"})
	if err != nil {
		return err
	}
	defer orders.Close() //nolint:errcheck // what is not acknowledged comes again

	handled, refused := make(chan Order), make(chan redrive.Ref)
	known := make(chan struct{}) // closed when somebody has found the address
	mux := redrive.NewMux()
	redrive.Handle(mux, func(ctx context.Context, o Order) error {
		select {
		case <-known:
			o.Address = "Unter den Linden 1"
		default:
		}
		if o.Address == "" {
			return redrive.Permanent(fmt.Errorf("%w: number %d", errAddress, o.Number))
		}
		select {
		case handled <- o:
		case <-ctx.Done():
		}
		return ctx.Err()
	}, redrive.ForKind(""))
	eng := engine.New(store, engine.Options{Observer: dead(refused)})
	if err := eng.Handle("orders", mux, engine.QueueOptions{Sources: []driver.Source{orders}}); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- eng.Run(ctx) }()

	ref, first := <-refused, <-handled
	fmt.Fprintf(out, "order %d goes to %s\n", first.Number, first.Address)
	entries, err := store.Get(ctx, []redrive.Ref{ref})
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "dead (%s): %s, from %s\n", entries[0].Reason, entries[0].History.Latest().Message, entries[0].Origin)

	close(known)
	if err := deadletter.Redrive(ctx, store, ref); err != nil {
		return err
	}
	again := <-handled
	fmt.Fprintf(out, "redriven: order %d goes to %s\n", again.Number, again.Address)
	stop()
	return <-ended
}

// publishOrders is the other program, which knows nothing of Redrive.
func publishOrders(ctx context.Context, server string) error {
	nc, err := nats.Connect(server)
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := natsjs.New(nc)
	if err != nil {
		return err
	}
	if _, err := js.CreateOrUpdateStream(ctx, natsjs.StreamConfig{Name: "ORDERS", Subjects: []string{"orders"}}); err != nil {
		return err
	}
	for _, body := range []string{`{"number": 1}`, `{"number": 2, "address": "Potsdamer Platz 2"}`} {
		if _, err := js.Publish(ctx, "orders", []byte(body)); err != nil {
			return err
		}
	}
	return nil
}

// dead tells of dead letters, when they are safe in the store.
type dead chan redrive.Ref

func (d dead) Observe(o *engine.Observation) {
	if o.Occasion == engine.OnSettled && o.Settlement.Outcome == redrive.OutcomeDead {
		go func(ref redrive.Ref) { d <- ref }(o.Delivery.Ref())
	}
}
