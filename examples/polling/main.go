// Command polling shows recurring messages on a Redis list: many accounts are polled in
// a loop by several workers. An account can be added and stopped; one that fails too
// often leaves the loop where it can be seen, and is put back.
//
//	go run ./examples/polling -redis redis://localhost:6379/0
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redrive/redrive"
)

func main() {
	url := flag.String("redis", "redis://localhost:6379/0", "`URL` of the server")
	workers := flag.Int("workers", 3, "how many workers")
	accounts := flag.Int("accounts", 20, "how many accounts")
	d := flag.Duration("for", 5*time.Second, "how long")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	ctx, cancel := context.WithTimeout(ctx, *d)
	err := run(ctx, *url, *workers, *accounts, os.Stdout)
	cancel()
	stop()
	if err != nil {
		log.Fatal(err)
	}
}

var errLocked = errors.New("the account is locked")

func run(ctx context.Context, url string, workers, accounts int, out io.Writer) (err error) {
	var polls atomic.Int64
	poll := func(_ context.Context, account string) error {
		polls.Add(1)
		if account == "account-1" {
			return errLocked
		}
		return nil
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	var first *Loop
	for range workers {
		l, err := NewLoop(ctx, url, "polling", time.Second, poll)
		if err != nil {
			return err
		}
		if first == nil {
			first = l
		}
		wg.Go(func() {
			if err := errors.Join(l.Work(ctx, redrive.Policy{MaxAttempts: 3, Backoff: redrive.Fixed{Interval: 100 * time.Millisecond}}), l.Close()); err != nil {
				log.Print(err)
			}
		})
	}
	for i := range accounts {
		if err := first.Add(ctx, fmt.Sprintf("account-%d", i)); err != nil {
			return err
		}
	}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		failed, err := first.Failed(ctx)
		if err != nil {
			continue // the time is over
		}
		fmt.Fprintln(out, "polled", polls.Load(), "times")
		for i := range failed {
			fmt.Fprintln(out, failed[i].ID, "left the loop:", failed[i].History.Latest().Message)
		}
	}
}
