package main

import (
	"strings"
	"testing"
	"time"

	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/redistest"
)

func claimOne(t *testing.T, store driver.Store) {
	t.Helper()
	ds, err := store.Claim(t.Context(), driver.ClaimRequest{Queue: "q", Instance: "worker-\x1b[31m7", Max: 1, Lease: time.Minute})
	if err != nil || len(ds) != 1 {
		t.Fatalf("%v, %v", ds, err)
	}
}

func TestQueuesProcessing(t *testing.T) {
	b := newBench(t)
	b.expect(exitOK, "nothing is in flight", "queues", "--processing")
	b.expect(exitOK, "accepted", "publish", "q", "x", "--id", "one")
	b.expect(exitOK, "accepted", "publish", "other", "x")
	b.expect(exitOK, "nothing is in flight", "queues", "--processing", "q")
	claimOne(t, b.store)
	for _, args := range [][]string{{"queues", "--processing"}, {"queues", "--processing", "q"}, {"queues", "list", "q", "--processing"}} {
		if out := b.expect(exitOK, "worker-", args...); !strings.Contains(out, "one") || strings.Contains(out, "\x1b") || strings.Contains(out, "other") {
			t.Errorf("%s", out)
		}
	}
	b.expect(exitOK, `"leased_until"`, "queues", "--processing", "q", "--json")
	b.expect(exitUsage, "1 to 1000", "queues", "--processing", "--limit", "0")
	b.expect(exitUsage, "a-z", "queues", "--processing", "BAD QUEUE")
	b.expect(exitFailed, "Queue not found", "queues", "none")
	if out := b.expect(exitOK, "", "queues", "q"); strings.Contains(out, "other") {
		t.Errorf("one queue: %s", out)
	}
	b.expect(exitNone, "no stream to monitor", "queues", "monitor", "q")
}

func TestQueuesMonitor(t *testing.T) {
	r := redistest.Start(t, redistest.Options{})
	b := newBench(t)
	b.expect(exitOK, "there are no queues", "queues", "monitor", "--data", r.URL())
	for range 3 {
		b.expect(exitOK, "accepted", "publish", "q", "x", "--data", r.URL())
	}
	store, err := openStore(t.Context(), storeAddress(r.URL()))
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	claimOne(t, store)
	out := b.expect(exitOK, "3 entries, 2 of them unclaimed", "queues", "monitor", "q", "--data", r.URL())
	for _, want := range []string{"worker-", "claims: 1 at attempt 1", "dead letters (stream"} {
		if !strings.Contains(out, want) || strings.Contains(out, "\x1b") {
			t.Errorf("want %q:\n%s", want, out)
		}
	}
	b.expect(exitOK, `"last_hour": 0`, "queues", "monitor", "--data", r.URL(), "--json")
	parts := r.URL() + "?partitions=2&prefix=parts"
	b.expect(exitOK, "accepted", "publish", "q", "x", "--data", parts)
	b.expect(exitOK, "{parts/1}:q", "queues", "monitor", "q", "--data", parts)
	b.expect(exitOK, `"node": "`+r.Addr, "queues", "monitor", "--data", parts, "--json")
}
