package brokertest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/backend/sqlite"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/engine"
	"github.com/redrive/redrive/internal/childtest"
)

// victim is a process that consumes a queue until nothing is left of it. One of the
// messages kills it.
type victim struct {
	Address, Dir string
	Messages     int    // that the first process has in flight when it dies
	Killer       string // the id of the message that kills
}

// Victim is the process that a case kills. The package's TestMain must name it among the
// parts of [childtest.Main].
func Victim(open Opener) childtest.Part {
	return childtest.Part{Name: victimPart, Run: func(ctx context.Context, words []string) error {
		var v victim
		if err := json.Unmarshal([]byte(words[0]), &v); err != nil {
			return err
		}
		return v.run(ctx, open)
	}}
}

const victimPart = "victim"

// crashes is how often the killer may kill a process in which it is isolated.
const crashes = 2

// run consumes the queue until the killer is dead and the others are done.
func (v *victim) run(ctx context.Context, open Opener) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	store, err := sqlite.Open(filepath.Join(v.Dir, "store"))
	if err != nil {
		return err
	}
	defer store.Close()
	source, err := open(ctx, v.Address)
	if err != nil {
		return err
	}
	defer source.Close()
	begun := make(chan struct{}, v.Messages)
	e := engine.New(store, engine.Options{Grace: time.Second})
	err = e.Handle(Queue, redrive.HandlerFunc(func(ctx context.Context, d *redrive.Delivery) error {
		if d.ID != v.Killer {
			if d.Suspect {
				return nil
			}
			begun <- struct{}{}
			<-ctx.Done()
			return ctx.Err()
		}
		for range v.Messages - 1 {
			if !d.Suspect {
				<-begun
			}
		}
		childtest.Killed()
		return nil
	}), engine.QueueOptions{Sources: []driver.Source{source}, Concurrency: v.Messages, Lease: time.Second,
		Policies: engine.Policies{Default: redrive.Policy{MaxCrashes: crashes}}})
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx) }()
	if err := v.await(ctx, store); err != nil {
		return err
	}
	stop()
	return <-ended
}

// await waits until all messages ended.
func (v *victim) await(ctx context.Context, store driver.Store) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		all, err := store.Counts(ctx, Queue)
		if err != nil {
			return err
		}
		if c := all[0]; c.Dead[redrive.ReasonCrashed] == 1 && c.Ledger.Done == int64(v.Messages-1) {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("not all ended: %+v", all)
		}
	}
}

// killedProcess has a process die of one message with others in flight, again and again: the
// next one handles each of them isolated, so that only the one that kills ends dead.
func killedProcess(t *testing.T, b *Broker) {
	v := victim{Address: b.Make(t), Dir: t.TempDir(), Messages: 6, Killer: "m3"}
	source := b.open(t, v.Address)
	Publish(t, source, v.Messages)
	if err := source.Close(); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	died := 0
	for ended := false; !ended; {
		var out bytes.Buffer
		cmd := childtest.Part{Name: victimPart}.Command(t, string(text))
		cmd.Stdout, cmd.Stderr = &out, &out
		err := cmd.Run()
		var exit *exec.ExitError
		switch {
		case err == nil:
			ended = true
		case errors.As(err, &exit) && exit.ExitCode() < 0: // by a signal
			died++
		default:
			t.Fatalf("%v: %s", err, &out)
		}
	}
	if died != 1+crashes+1 {
		t.Errorf("%d processes died, want one with all in flight and %d with the killer isolated", died, crashes+1)
	}
	store, err := sqlite.Open(filepath.Join(v.Dir, "store"))
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	entries, err := store.Get(t.Context(), []redrive.Ref{{Queue: Queue, ID: v.Killer}})
	if err != nil || entries[0] == nil {
		t.Fatalf("%v, %v", entries, err)
	}
	if e := entries[0]; e.State != redrive.StateDead || e.Reason != redrive.ReasonCrashed || string(e.Body) != body(3) || e.Crashes != crashes+1 {
		t.Errorf("%+v", e)
	}
}
