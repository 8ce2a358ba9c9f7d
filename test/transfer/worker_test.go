package transfer

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/backend"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/engine"
	"github.com/redrive/redrive/internal/childtest"
	"github.com/redrive/redrive/internal/natstest"
)

// queue is what every worker consumes.
const queue = "sms"

// errPoison is what every handling of a message ends with.
var errPoison = redrive.Permanent(errors.New("no such number"))

// work is what a worker receives.
type work struct {
	Store  string // address of the store; empty: in memory, for a source that keeps all itself
	Kind   string // the source's backend; empty: messages come from the store
	Source string // its address
	Native bool
	Proxy  string // where connections of the source go, for clients that receive other addresses by the broker
}

// open opens a worker's store and source.
func (w *work) open(ctx context.Context) (driver.Store, driver.Source, error) {
	store, err := backend.Open(ctx, w.Store)
	if err != nil || w.Kind == "" {
		return store, nil, err
	}
	opener := openers[w.Kind]
	if opener == nil {
		opener = openSource
	}
	src, err := opener(ctx, w)
	if err != nil {
		return nil, nil, errors.Join(err, store.Close())
	}
	return store, src, nil
}

// openers open sources that need more than an address.
var openers = map[string]func(context.Context, *work) (driver.Source, error){}

func openSource(ctx context.Context, w *work) (driver.Source, error) {
	return backend.OpenSource(ctx, w.Source, backend.SourceOptions{Queue: queue, Native: w.Native})
}

// consume handles messages until ctx ends: each one fails for good. begun is called for each
// before.
func (w *work) consume(ctx context.Context, begun func(body string)) error {
	opening, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	store, src, err := w.open(opening)
	if err != nil {
		return err
	}
	o := engine.QueueOptions{Lease: time.Second, Breaker: engine.BreakerOptions{Off: true}}
	if src != nil {
		o.Sources = []driver.Source{src}
		if sink, ok := src.(driver.DeadLetterSink); ok && w.Native {
			o.DeadLetters = sink
		}
	}
	e := engine.New(store, engine.Options{Grace: time.Second})
	err = e.Handle(queue, redrive.HandlerFunc(func(_ context.Context, d *redrive.Delivery) error {
		begun(string(d.Body))
		return errPoison
	}), o)
	if err == nil {
		err = e.Run(ctx)
	}
	if src != nil {
		err = errors.Join(err, src.Close())
	}
	return errors.Join(err, store.Close())
}

// worker is a process that handles messages. Its handler goes on when it is answered, so
// that whoever watches knows where its steps begin.
var worker = childtest.Part{Name: "worker", Run: func(ctx context.Context, words []string) error {
	var w work
	if err := json.Unmarshal([]byte(words[0]), &w); err != nil {
		return err
	}
	return w.consume(ctx, func(body string) {
		fmt.Println(body)
		var answer string
		if _, err := fmt.Scanln(&answer); err != nil {
			os.Exit(3) // nobody watches any more
		}
	})
}}

func TestMain(m *testing.M) {
	os.Exit(childtest.Main(func() int {
		// Strategies mostly wait: for leases, sessions and servers. All begin at once, or the
		// slowest would stand by itself at the end.
		flag.Parse()
		if err := flag.Set("test.parallel", strconv.Itoa(len(strategies))); err != nil {
			panic(err)
		}
		return m.Run()
	}, natstest.Part, worker))
}
