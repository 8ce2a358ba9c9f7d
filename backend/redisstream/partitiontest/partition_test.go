// Package partitiontest_test runs the conformance suite and an engine on Redis streams with
// several partitions a queue, in a process of its own.
package partitiontest_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/backend/backendtest"
	"github.com/redrive/redrive/backend/redisstream"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/engine"
	"github.com/redrive/redrive/internal/childtest"
	"github.com/redrive/redrive/internal/redistest"
	"github.com/redrive/redrive/internal/servertest"
)

// worker works on the store of an address, and notes what it does in the lists of a second
// one.
var worker = childtest.Part{Name: "worker", Run: func(_ context.Context, words []string) error {
	work(words[0], words[1])
	return nil
}}

func TestMain(m *testing.M) {
	os.Exit(childtest.Main(func() int { return servertest.Main(m.Run) }, worker))
}

func noErr(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// stores makes stores behind an address with three partitions.
func stores(address string) backendtest.Factory {
	prefixes := map[driver.Store]string{}
	open := func(t testing.TB, prefix string) driver.Store {
		t.Helper()
		s, err := redisstream.Open(context.Background(), address+"?partitions=3", redisstream.WithPrefix(prefix))
		noErr(t, err)
		t.Cleanup(func() { _ = s.Close() })
		prefixes[s] = prefix
		return s
	}
	again := func(t testing.TB, s driver.Store) driver.Store { return open(t, prefixes[s]) }
	closed := func(t testing.TB, s driver.Store) driver.Store {
		noErr(t, s.Close()) // what it held stays as it is: nothing is given back
		return again(t, s)
	}
	return backendtest.Factory{
		Open:    func(t testing.TB) driver.Store { return open(t, redistest.Prefix()) },
		Connect: again, Reopen: closed, Crash: closed, Partitions: true,
	}
}

func TestConformance(t *testing.T) {
	backendtest.Run(t, stores(redistest.Shared(t).URL()))
}

// TestKillFreeClusterConformance runs the suite on a cluster, over the nodes of which every
// queue is spread.
func TestKillFreeClusterConformance(t *testing.T) {
	if os.Getenv("REDRIVE_PROOF_ROUNDS") == "" {
		t.Skip("not offered: a minute; REDRIVE_PROOF_ROUNDS=1 runs it")
	}
	backendtest.Run(t, stores(redistest.ClusterURL(redistest.Cluster(t, 3))))
}

// keys is how many keys the ordered messages of the test have.
const keys = 50

// engine consumes "sms" until ctx ends; each delivery is noted with the message's body.
func eng(ctx context.Context, s driver.Store, effects *redis.Client) error {
	e := engine.New(s, engine.Options{})
	err := e.Handle("sms", redrive.HandlerFunc(func(ctx context.Context, d *redrive.Delivery) error {
		list := "effects"
		if d.Key != "" {
			list += ":" + d.Key
		}
		return effects.RPush(ctx, list, string(d.Body)).Err()
	}), engine.QueueOptions{Concurrency: 32, Lease: 2 * time.Second, Breaker: engine.BreakerOptions{Off: true}})
	if err != nil {
		return err
	}
	return e.Run(ctx)
}

// work never returns: its parent kills it.
func work(address, effects string) {
	ctx := context.Background()
	s, err := redisstream.Open(ctx, address)
	if err != nil {
		fmt.Println("failed:", err)
		return
	}
	fmt.Println("at work")
	err = eng(ctx, s, redis.NewClient(&redis.Options{Addr: effects}))
	fmt.Println("failed:", err)
}

// spawn starts a worker and returns what kills it.
func spawn(t *testing.T, job string) (kill func()) {
	t.Helper()
	cmd := worker.Command(t, strings.Fields(job)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	noErr(t, err)
	noErr(t, cmd.Start())
	said, err := bufio.NewReader(out).ReadString('\n')
	noErr(t, err)
	if said != "at work\n" {
		t.Fatal(said)
	}
	return func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
}

// TestKillOfAWorker publishes 10,000 messages, some with keys, over the partitions of a
// queue, kills a worker among them, and finds each handled, those of a key in their order.
func TestKillOfAWorker(t *testing.T) {
	const n = 10_000
	server := redistest.Shared(t)
	address := server.URL() + "?partitions=4&prefix=" + redistest.Prefix()
	effects := server.Client(t)
	noErr(t, effects.Del(t.Context(), "effects").Err())
	s, err := redisstream.Open(t.Context(), address)
	noErr(t, err)
	t.Cleanup(func() { _ = s.Close() })
	noErr(t, s.Configure(t.Context(), "sms", driver.QueueSettings{OrderByKey: true}))
	kill := spawn(t, address+" "+server.Addr)
	msgs := make([]redrive.Message, 0, 100)
	for i := range n {
		m := redrive.Message{Queue: "sms", Body: []byte(strconv.Itoa(i))}
		switch i % 4 {
		case 0:
			m.Key = "key" + strconv.Itoa(i/4%keys)
		case 1:
			m.ID = "chosen-" + strconv.Itoa(i)
		}
		if msgs = append(msgs, m); len(msgs) == cap(msgs) {
			noErr(t, driver.FirstError(s.Publish(t.Context(), msgs)))
			msgs = msgs[:0]
		}
		if i == n/2 {
			servertest.Until(t, "the worker to be in the middle", func() bool { return effects.LLen(t.Context(), "effects").Val() > 0 })
			kill()
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- eng(ctx, s, effects) }()
	servertest.Until(t, "all to be handled", func() bool {
		c, err := s.Counts(t.Context(), "sms")
		return err == nil && c[0].AllWaiting() == 0 && c[0].Ledger.Done == n
	})
	cancel()
	noErr(t, <-done)
	check(t, effects, n)
	audits, err := s.Verify(t.Context())
	noErr(t, err)
	if a := audits[0]; len(audits) != 1 || a.Imbalance() != 0 || len(a.Problems) > 0 || a.Dead != 0 {
		t.Errorf("%+v", audits)
	}
}

// check finds the effect of every message, and those of a key for the first time in their
// order.
func check(t *testing.T, effects *redis.Client, n int) {
	t.Helper()
	seen := map[string]bool{}
	repeated := 0
	for k := range keys + 1 {
		list := "effects:key" + strconv.Itoa(k)
		if k == keys {
			list = "effects"
		}
		bodies, err := effects.LRange(t.Context(), list, 0, -1).Result()
		noErr(t, err)
		last := -1
		for _, body := range bodies {
			i, err := strconv.Atoi(body)
			noErr(t, err)
			if seen[body] {
				repeated++
				continue
			}
			seen[body] = true
			if k < keys && i < last {
				t.Errorf("key%d: %d came after %d", k, i, last)
			}
			last = i
		}
	}
	if len(seen) != n {
		t.Errorf("%d of %d messages had an effect", len(seen), n)
	}
	t.Logf("%d handled, %d of them twice for the kill", len(seen), repeated)
}
