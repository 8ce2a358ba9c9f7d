package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/backend/sqlite"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/engine"
	"github.com/redrive/redrive/internal/childtest"
)

// crasher is a program of the library with one message that ends the process as soon as
// its handler runs, among many that do not: a folder, and how many. The test starts it
// again each time, as a supervisor would. It ends with 0 when nothing waits any more.
var crasher = childtest.Part{Name: "crasher", Run: func(ctx context.Context, words []string) error {
	good, err := strconv.Atoi(words[1])
	if err != nil {
		return err
	}
	return crash(ctx, words[0], good)
}}

const (
	crasherQueue = "work"
	crasherExit  = 42
)

func crash(ctx context.Context, dir string, good int) error {
	store, err := sqlite.Open(filepath.Join(dir, "data"))
	if err != nil {
		return err
	}
	defer store.Close()
	effects, err := os.OpenFile(filepath.Join(dir, "effects"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	if err := publishGood(ctx, store, good); err != nil {
		return err
	}
	mux := redrive.NewMux()
	redrive.Handle(mux, func(context.Context, []byte) error {
		os.Exit(crasherExit)
		return nil
	}, redrive.ForKind("exit"))
	mux.Handle("good", redrive.HandlerFunc(func(_ context.Context, d *redrive.Delivery) error {
		_, err := fmt.Fprintln(effects, d.ID)
		return err
	}))
	ended := make(chan error, 1)
	go func() {
		ended <- engine.Run(ctx, store, crasherQueue, mux, engine.QueueOptions{Concurrency: 64})
	}()
	for {
		counts, err := store.Counts(ctx, crasherQueue)
		if err != nil {
			return err
		}
		if counts[0].AllWaiting() == 0 {
			stop()
			return <-ended
		}
		select {
		case err := <-ended:
			return err
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// publish puts everything in, each time again: the ids are remembered.
func publishGood(ctx context.Context, store driver.Store, good int) error {
	msgs := make([]redrive.Message, 0, good+1)
	for i := range good {
		if i == good/2 {
			msgs = append(msgs, redrive.Message{Queue: crasherQueue, ID: "exit", Kind: "exit"})
		}
		msgs = append(msgs, redrive.Message{Queue: crasherQueue, ID: fmt.Sprintf("good-%04d", i), Kind: "good"})
	}
	for _, err := range store.Publish(ctx, msgs) {
		if err != nil && !errors.Is(err, redrive.ErrDuplicate) {
			return err
		}
	}
	return nil
}
