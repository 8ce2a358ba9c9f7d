package redislist

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/childtest"
	"github.com/redrive/redrive/internal/redistest"
	"github.com/redrive/redrive/internal/servertest"
)

func TestMain(m *testing.M) {
	os.Exit(childtest.Main(func() int { return servertest.Main(m.Run) }, child, killed))
}

// child works on the source of a URL until its parent kills it: "work URL", "recover URL
// STEP" or "engine URL".
var child = childtest.Part{Name: "child", Run: func(_ context.Context, job []string) error {
	work(job)
	return nil
}}

const childLease = 250 * time.Millisecond

func work(job []string) {
	if job[0] == "engine" {
		engineChild(job[1])
		return
	}
	ctx := context.Background()
	s, err := Open(ctx, job[1], Options{})
	if err != nil {
		fmt.Println("failed:", err)
		return
	}
	if job[0] == "recover" {
		fmt.Println("at", recoverUpTo(ctx, s, job[2]))
		select {}
	}
	fmt.Println("at work")
	for i := 0; ; i++ {
		req := driver.ClaimRequest{Queue: "sms", Max: 5, Lease: childLease, Instance: fmt.Sprint(os.Getpid()), Isolated: i%3 == 2, Lane: redrive.Lane(i % 2)}
		ds, err := s.Claim(ctx, req)
		if err != nil {
			fmt.Println("failed:", err)
			return
		}
		for j := range ds {
			workOn(ctx, s, &ds[j], i)
		}
	}
}

// workOn notes the effect of a message and settles it: at first often by a retry.
func workOn(ctx context.Context, s *Source, d *redrive.Delivery, i int) {
	if err := s.conn.HIncrBy(ctx, s.o.List("sms")+":effects", d.ID, 1).Err(); err != nil {
		fmt.Println("failed:", err)
	}
	settlement := driver.Settlement{Receipt: d.Receipt, Outcome: redrive.OutcomeDone}
	if d.Failures == 0 && i%4 == 0 {
		settlement.Outcome, settlement.Failure = redrive.OutcomeRetry, &redrive.Failure{Message: "once"}
	}
	if err := driver.FirstError(s.Settle(ctx, []driver.Settlement{settlement})); err != nil && !errors.Is(err, redrive.ErrLeaseLost) && !errors.Is(err, redrive.ErrNotFound) {
		fmt.Println("failed:", err)
	}
}

// recoverUpTo recovers one entry, up to a step.
func recoverUpTo(ctx context.Context, s *Source, step string) string {
	steps := []string{"opened", "woken", "claimed", "extended", "settled"}
	var ds []redrive.Delivery
	for _, now := range steps {
		var err error
		switch now {
		case "woken":
			_, err = s.Wait(ctx, []driver.Watch{{Queue: "sms"}})
		case "claimed":
			if ds, err = s.Claim(ctx, driver.ClaimRequest{Queue: "sms", Max: 1, Isolated: true, Lease: childLease, Instance: "recoverer"}); len(ds) != 1 {
				err = fmt.Errorf("claimed %d: %w", len(ds), err)
			}
		case "extended":
			err = driver.FirstError(s.Extend(ctx, []redrive.Receipt{ds[0].Receipt}, childLease))
		case "settled":
			err = driver.FirstError(s.Settle(ctx, []driver.Settlement{{Receipt: ds[0].Receipt, Outcome: redrive.OutcomeDone}}))
		}
		if err != nil {
			return "a fault: " + err.Error()
		}
		if now == step {
			return step
		}
	}
	return "no step " + step
}

// spawn starts a child and returns what it said first, and what kills it.
func spawn(t *testing.T, job string) (said string, kill func()) {
	t.Helper()
	cmd := child.Command(t, strings.Fields(job)...)
	out, err := cmd.StdoutPipe()
	noErr(t, err)
	noErr(t, cmd.Start())
	said, err = bufio.NewReader(out).ReadString('\n')
	noErr(t, err)
	return strings.TrimSpace(said), func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
}

// TestKillWorkers kills processes at any moment while they claim, recover and settle
// equal payloads: no message is lost, none gets a second name, and what is done twice is
// no more than what was in flight.
func TestKillWorkers(t *testing.T) {
	const messages, kills = 400, 12
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 0))
	url := redistest.Shared(t).URL() + "?prefix=" + redistest.Prefix()
	s := connect(t, url, Options{})
	ctx := t.Context()
	for range messages / 2 {
		noErr(t, s.conn.LPush(ctx, s.o.List("sms"), "same").Err())
		noErr(t, driver.FirstError(s.Publish(ctx, []redrive.Message{{Queue: "sms", Body: []byte("same")}})))
	}
	for i := range kills {
		said, kill := spawn(t, "work "+url)
		if said != "at work" {
			t.Fatal(said)
		}
		<-time.After(time.Duration(rng.Int64N(int64(30 * time.Millisecond))))
		kill()
		if c, err := s.Counts(ctx, "sms"); err != nil || c.Waiting == 0 {
			t.Logf("nothing waits after %d kills, %v", i+1, err)
			break
		}
	}
	said, kill := spawn(t, "work "+url)
	if said != "at work" {
		t.Fatal(said)
	}
	defer kill()
	servertest.Until(t, "all to be done", func() bool {
		c, err := s.Counts(ctx, "sms")
		return err == nil && c == Counts{}
	})
	effects, err := s.conn.HGetAll(ctx, s.o.List("sms")+":effects").Result()
	noErr(t, err)
	total := 0
	for _, n := range effects {
		var i int
		_, _ = fmt.Sscan(n, &i)
		total += i
	}
	t.Logf("seed %d: %d messages, %d effects with retries", seed, len(effects), total)
	if len(effects) != messages {
		t.Errorf("%d messages were seen, %d were published (seed %d)", len(effects), messages, seed)
	}
}

// TestKillRecoverer kills a recoverer after each of its steps: the entry comes back, and
// is finished once.
func TestKillRecoverer(t *testing.T) {
	for _, step := range []string{"opened", "woken", "claimed", "extended", "settled"} {
		url := redistest.Shared(t).URL() + "?prefix=" + redistest.Prefix()
		s := connect(t, url, Options{})
		ctx := t.Context()
		noErr(t, s.conn.LPush(ctx, s.o.List("sms"), "same", "same").Err())
		held, err := s.Claim(ctx, driver.ClaimRequest{Queue: "sms", Max: 2, Lease: minLease, Instance: "dead"})
		noErr(t, err)
		<-time.After(2 * minLease)
		said, kill := spawn(t, "recover "+url+" "+step)
		if said != "at "+step {
			t.Fatal(said)
		}
		kill()
		want := 2
		if step == "settled" {
			want = 1
		}
		seen := map[string]int{}
		servertest.Until(t, "what was in flight", func() bool {
			ds, err := s.Claim(ctx, driver.ClaimRequest{Queue: "sms", Max: 2, Isolated: true, Lease: time.Hour, Instance: "next"})
			noErr(t, err)
			for _, d := range ds {
				seen[d.ID]++
				noErr(t, driver.FirstError(s.Settle(ctx, []driver.Settlement{{Receipt: d.Receipt, Outcome: redrive.OutcomeDone}})))
			}
			return len(seen) == want
		})
		for _, d := range held { // the first holder comes back, too late
			if err := driver.FirstError(s.Settle(ctx, []driver.Settlement{{Receipt: d.Receipt, Outcome: redrive.OutcomeDone}})); err == nil {
				t.Errorf("%s: a settlement counted after the entry was finished", step)
			}
		}
		if c, err := s.Counts(ctx, "sms"); err != nil || c != (Counts{}) {
			t.Errorf("%s: left %+v, %v", step, c, err)
		}
	}
}

// TestKillRedis kills the server while messages are published and settled: with every
// write synced, nothing that was acknowledged is lost, and nothing that was settled comes
// again.
func TestKillRedis(t *testing.T) {
	server := redistest.Start(t, redistest.Options{AppendOnly: true, Fsync: "always"})
	s := connect(t, server.URL(), Options{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var mu sync.Mutex
	accepted, settled, unknown, again := map[string]bool{}, map[string]bool{}, map[string]bool{}, 0
	var published atomic.Int64
	var wg sync.WaitGroup
	wg.Go(func() {
		for ctx.Err() == nil {
			msgs := []redrive.Message{{Queue: "sms", Body: []byte("b")}, {Queue: "sms", Body: []byte("b"), Delay: 30 * time.Millisecond}}
			for i, err := range s.Publish(ctx, msgs) {
				if err == nil {
					mu.Lock()
					accepted[msgs[i].ID] = true
					mu.Unlock()
					published.Add(1)
				}
			}
		}
	})
	work := func(req driver.ClaimRequest) {
		ds, err := s.Claim(ctx, req)
		if err != nil {
			return
		}
		for _, d := range ds {
			mu.Lock()
			if settled[d.ID] {
				again++
			}
			mu.Unlock()
			err := driver.FirstError(s.Settle(ctx, []driver.Settlement{{Receipt: d.Receipt, Outcome: redrive.OutcomeDone}}))
			mu.Lock()
			if err == nil {
				settled[d.ID] = true
			}
			if errors.Is(err, redrive.ErrUnknown) {
				unknown[d.ID] = true
			}
			mu.Unlock()
		}
	}
	req := driver.ClaimRequest{Queue: "sms", Max: 3, Lease: childLease, Instance: "w"}
	wg.Go(func() {
		for ctx.Err() == nil {
			work(req)
			r := req
			r.Isolated = true
			work(r)
		}
	})
	for range 4 {
		enough := published.Load() + 60
		servertest.Until(t, "messages to be published", func() bool { return published.Load() >= enough })
		server.Kill()
		noErr(t, server.Resume())
	}
	cancel()
	wg.Wait()
	ctx = t.Context()
	servertest.Until(t, "the rest", func() bool {
		r := req
		r.Isolated = true
		work(req)
		work(r)
		c, err := s.Counts(ctx, "sms")
		return err == nil && c == Counts{}
	})
	lost := 0
	for id := range accepted {
		if !settled[id] && !unknown[id] { // whose settlement counted, though its answer was lost
			lost++
		}
	}
	t.Logf("%d accepted, %d settled, %d of them without an answer", len(accepted), len(settled), len(unknown))
	if lost > 0 || again > 0 {
		t.Errorf("%d of %d accepted were never settled, %d came again after they were settled", lost, len(accepted), again)
	}
}

// TestScriptFlush empties the server's cache of scripts again and again.
func TestScriptFlush(t *testing.T) {
	s := open(t, Options{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var wg sync.WaitGroup
	wg.Go(func() {
		for ctx.Err() == nil {
			_ = s.conn.ScriptFlush(ctx).Err()
		}
	})
	for i := range 300 {
		noErr(t, driver.FirstError(s.Publish(t.Context(), []redrive.Message{{Queue: "sms"}})))
		ds, err := s.Claim(t.Context(), driver.ClaimRequest{Queue: "sms", Max: 5, Lease: time.Minute, Instance: "w"})
		noErr(t, err)
		if len(ds) != 1 || ds[0].Attempt != 1 {
			t.Fatalf("round %d: claimed %d", i, len(ds))
		}
		noErr(t, driver.FirstError(s.Extend(t.Context(), []redrive.Receipt{ds[0].Receipt}, time.Minute)))
		noErr(t, driver.FirstError(s.Settle(t.Context(), []driver.Settlement{{Receipt: ds[0].Receipt, Outcome: redrive.OutcomeDone}})))
	}
	cancel()
	wg.Wait()
}
