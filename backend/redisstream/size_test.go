package redisstream

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/redistest"
)

// usedMemory is what the server's data takes.
func usedMemory(t testing.TB, s *Store) int64 {
	t.Helper()
	return number(infoField(t, s, "memory", "used_memory_dataset"))
}

func publishBodies(t testing.TB, s *Store, n int, fill func(i int, m *redrive.Message)) {
	t.Helper()
	for base := 0; base < n; base += 500 {
		msgs := make([]redrive.Message, min(500, n-base))
		for i := range msgs {
			msgs[i] = redrive.Message{Queue: "sms", Kind: "sms.send", Body: []byte(strings.Repeat("x", 256))}
			if fill != nil {
				fill(base+i, &msgs[i])
			}
		}
		noErr(t, driver.FirstError(s.Publish(t.Context(), msgs)))
	}
}

func TestMemoryOfAWaitingMessage(t *testing.T) {
	server := redistest.Start(t, redistest.Options{})
	const n = 20_000
	for _, tc := range []struct {
		name string
		most int64 // bytes; 0: only measured
		fill func(i int, m *redrive.Message)
	}{
		{"generated id", 400, nil},
		{"chosen id", 0, func(i int, m *redrive.Message) { m.ID = driver.DeriveID(strconv.Itoa(i)) }},
		{"delayed", 0, func(_ int, m *redrive.Message) { m.Delay = time.Hour }},
	} {
		s := openAt(t, server.URL(), strings.ReplaceAll(tc.name, " ", "-"))
		before := usedMemory(t, s)
		publishBodies(t, s, n, tc.fill)
		each := (usedMemory(t, s) - before) / n
		t.Logf("%s: %d bytes a message of 256", tc.name, each)
		if tc.most > 0 && each > tc.most {
			t.Errorf("%s: %d bytes a message, want at most %d", tc.name, each, tc.most)
		}
	}
}

// TestKillFreePingWithManyPending measures how long others wait while a million leases
// are held; with few rounds it only runs through.
func TestKillFreePingWithManyPending(t *testing.T) {
	n := 5000
	if rounds(0) > 0 {
		n = 1_000_000
	}
	server := redistest.Start(t, redistest.Options{})
	s := openAt(t, server.URL(), "pending")
	publishBodies(t, s, n, nil)
	for left := n; left > 0; {
		ds := claim(t, s, driver.ClaimRequest{Queue: "sms", Max: min(left, 1000), Lease: 2 * time.Second, Instance: "gone"})
		left -= len(ds)
	}
	<-time.After(2 * time.Second) // all leases run out
	client := server.Client(t)
	ping := func(ctx context.Context) (took []time.Duration) {
		for ctx.Err() == nil {
			began := time.Now()
			noErr(t, client.Ping(t.Context()).Err())
			took = append(took, time.Since(began))
		}
		slices.Sort(took)
		return took
	}
	quiet, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	idle := ping(quiet)
	noErr(t, client.ConfigSet(t.Context(), "slowlog-log-slower-than", "1000").Err())
	noErr(t, client.Do(t.Context(), "SLOWLOG", "RESET").Err())
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	var wg sync.WaitGroup
	recovered := 0
	wg.Go(func() {
		for ctx.Err() == nil {
			ds, err := s.Claim(t.Context(), driver.ClaimRequest{Queue: "sms", Max: 100, Lease: time.Minute, Instance: "new", Isolated: true})
			if err != nil || len(ds) == 0 {
				return
			}
			recovered += len(ds)
		}
	})
	wg.Go(func() {
		for ctx.Err() == nil {
			if _, err := s.Counts(t.Context(), "sms"); err != nil {
				t.Error(err)
			}
			if _, err := s.Monitor(t.Context(), "sms"); err != nil {
				t.Error(err)
			}
		}
	})
	took := ping(ctx)
	wg.Wait()
	var longest time.Duration
	for _, l := range client.SlowLogGet(t.Context(), 128).Val() {
		longest = max(longest, l.Duration)
	}
	t.Logf("%d pending, %d recovered meanwhile: PING p50 %s, p99 %s (p99 %s while nothing else was asked); the longest command took the server %s",
		n, recovered, took[len(took)/2], took[len(took)*99/100], idle[len(idle)*99/100], longest)
}
