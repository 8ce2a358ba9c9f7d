package main

import (
	"context"
	"errors"
	"strings"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/backend"
	"github.com/redrive/redrive/backend/memory"
	"github.com/redrive/redrive/driver"
)

// queue is where requests wait: in a store, or in a broker with a store beside it for
// what a broker cannot keep: retries, dead letters, results and the guard's state.
type queue struct {
	store  driver.Store
	sink   redrive.Sink  // nil: the store
	source driver.Source // of what the sink took; nil: the store
}

// openQueue opens the queue at an address, and the store beside it if it is a topic.
func openQueue(ctx context.Context, address, beside string) (*queue, error) {
	if !strings.HasPrefix(address, "kafka:") {
		if beside != "" {
			return nil, errors.New("-store is what stands beside a topic; give -queue kafka://host:9092/topic, or leave -store out")
		}
		store, err := openStore(ctx, address)
		return &queue{store: store}, err
	}
	store, err := openStore(ctx, beside)
	if err != nil {
		return nil, err
	}
	topic, err := backend.OpenSource(ctx, address, backend.SourceOptions{Queue: "sms"})
	if err != nil {
		return nil, errors.Join(err, store.Close())
	}
	return &queue{store: store, sink: topic, source: topic}, nil
}

func openStore(ctx context.Context, address string) (driver.Store, error) {
	if address == "" {
		return memory.New(), nil
	}
	return backend.Open(ctx, address)
}

// close closes both; what was accepted is durable.
func (q *queue) close() error {
	var err error
	if q.source != nil {
		err = q.source.Close()
	}
	return errors.Join(err, q.store.Close())
}
