package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redrive/redrive"
)

// Claimers in processes of their own are this test binary, run anew with a schema in
// its environment.
const (
	claimerEnv = "REDRIVE_TEST_CLAIMER" // the schema
	urlEnv     = "REDRIVE_TEST_URL"
)

const (
	exclusiveLease    = 200 * time.Millisecond
	exclusiveHandler  = 400 * time.Millisecond // at most
	exclusiveMessages = 600                    // a round; each is claimed about 1.7 times
	exclusiveSlots    = 64                     // handlers of one claimer at a time
)

// heldFor is what a claimer writes down: by the store's clock it had a message from
// until, which ended so.
type heldFor struct {
	ID          string
	Token       uint64
	Position    string
	From, Until time.Time
	Result      string // of a settlement as done: ok, lost, or another error
}

// claimers is one process of claimers. Each claims by itself, handles for a random
// time and settles; one in ten falls silent instead.
func claimers(schema string) error {
	s, err := Open(context.Background(), os.Getenv(urlEnv), WithSchema(schema))
	if err != nil {
		return err
	}
	defer func() { _ = s.Close() }()
	var mu sync.Mutex
	out := json.NewEncoder(os.Stdout)
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			claimer(s, fmt.Sprintf("%d-%d", os.Getpid(), i), func(h heldFor) { mu.Lock(); _ = out.Encode(h); mu.Unlock() })
		})
	}
	wg.Wait()
	return nil
}

func claimer(s *Store, instance string, write func(heldFor)) {
	ctx := context.Background()
	var handlers sync.WaitGroup
	slots := make(chan struct{}, exclusiveSlots)
	for idle := 0; idle < 50; {
		req := redrive.ClaimRequest{Queue: "a", Max: 16, Lease: exclusiveLease, Instance: instance}
		req.Alone = rand.IntN(3) == 0
		got, err := s.Claim(ctx, req)
		if err == nil && len(got) == 0 {
			req.Alone = !req.Alone
			got, err = s.Claim(ctx, req)
		}
		if err != nil || len(got) == 0 {
			idle++
			sleep(ctx, 20*time.Millisecond)
			continue
		}
		idle = 0
		for _, d := range got {
			slots <- struct{}{}
			handlers.Go(func() {
				defer func() { <-slots }()
				sleep(ctx, rand.N(exclusiveHandler))
				h := heldFor{ID: d.ID, Token: d.Receipt.Token, Position: d.Receipt.Position, From: d.LeasedAt, Until: d.LeasedAt.Add(d.Lease)}
				if rand.IntN(10) == 0 {
					h.Result = "silent"
					write(h)
					return
				}
				err := redrive.FirstError(s.Settle(ctx, []redrive.Settlement{{Receipt: d.Receipt, Outcome: redrive.OutcomeDone}}))
				switch {
				case err == nil:
					h.Result = "ok"
				case errors.Is(err, redrive.ErrLeaseLost), errors.Is(err, redrive.ErrNotFound):
					h.Result = "lost"
				default:
					h.Result = err.Error()
				}
				write(h)
			})
		}
	}
	handlers.Wait()
}

// Sixteen claimers in four processes, leases shorter than many handlers: by the store's
// clock no message is held twice at one time, and each ends once, by its last holder.
func TestNoMessageIsHeldTwice(t *testing.T) {
	s := open(t)
	n := exclusiveMessages * proofRounds(t, 3)
	for base := 0; base < n; base += exclusiveMessages {
		msgs := make([]redrive.Message, exclusiveMessages)
		for i := range msgs {
			msgs[i] = redrive.Message{Queue: "a", ID: fmt.Sprint(base + i)}
		}
		noErr(t, redrive.FirstError(s.Publish(t.Context(), msgs)))
	}
	var mu sync.Mutex
	held := map[string][]heldFor{}
	var wg sync.WaitGroup
	for range 4 {
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), claimerEnv+"="+s.sql.schema, urlEnv+"="+server.URL())
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		noErr(t, err)
		noErr(t, cmd.Start())
		wg.Go(func() {
			lines := json.NewDecoder(out)
			for {
				var h heldFor
				if lines.Decode(&h) != nil {
					break
				}
				mu.Lock()
				held[h.ID] = append(held[h.ID], h)
				mu.Unlock()
			}
			if err := cmd.Wait(); err != nil {
				t.Errorf("a process of claimers: %v", err)
			}
		})
	}
	wg.Wait()
	claims, lost := 0, 0
	for id, list := range held {
		ok, last := 0, uint64(0)
		for _, h := range list {
			last = max(last, h.Token)
		}
		for i, h := range list {
			claims++
			switch h.Result {
			case "ok":
				ok++
				if h.Token != last {
					t.Errorf("%s was ended by token %d, and claimed again with %d", id, h.Token, last)
				}
			case "lost":
				lost++
			case "silent":
			default:
				t.Errorf("%s: %s", id, h.Result)
			}
			for _, o := range list[:i] {
				if h.From.Before(o.Until) && o.From.Before(h.Until) {
					t.Errorf("%s was held from %s by token %d and from %s by token %d", id, o.From, o.Token, h.From, h.Token)
				}
				if h.Token == o.Token && h.Position == o.Position {
					t.Errorf("%s: two claims with token %d", id, h.Token)
				}
			}
		}
		if ok != 1 {
			t.Errorf("%s ended %d times", id, ok)
		}
	}
	if len(held) != n {
		t.Errorf("%d of %d messages were claimed", len(held), n)
	}
	t.Logf("%d claims of %d messages, %d stale settlements refused", claims, n, lost)
	audited(t, s)
}

// A worker process that is killed in the middle of work leaves everything to others.
func TestKilledWorkerLosesNothing(t *testing.T) {
	s := open(t)
	const n = 1000
	msgs := make([]redrive.Message, n)
	for i := range msgs {
		msgs[i] = redrive.Message{Queue: "a", ID: fmt.Sprint(i)}
	}
	noErr(t, redrive.FirstError(s.Publish(t.Context(), msgs)))
	ended := map[string]int{}
	for round := range 4 {
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), claimerEnv+"="+s.sql.schema, urlEnv+"="+server.URL())
		out, err := cmd.StdoutPipe()
		noErr(t, err)
		noErr(t, cmd.Start())
		lines := json.NewDecoder(out)
		for seen := 0; ; seen++ {
			var h heldFor
			if lines.Decode(&h) != nil {
				break
			}
			if h.Result == "ok" {
				ended[h.ID]++
			}
			if round < 3 && seen == 100 {
				noErr(t, cmd.Process.Signal(syscall.SIGKILL))
			}
		}
		_ = cmd.Wait()
	}
	left := 0
	for _, e := range entries(t, s, "a") {
		left++
		if ended[e.ID] != 0 {
			t.Errorf("%s was settled and is there", e.ID)
		}
	}
	for id, times := range ended {
		if times != 1 {
			t.Errorf("%s ended %d times", id, times)
		}
	}
	c, err := s.Counts(t.Context(), "a")
	noErr(t, err)
	if c[0].Books.Done+int64(left) != n || left != 0 {
		t.Errorf("%d done and %d left of %d", c[0].Books.Done, left, n)
	}
	audited(t, s)
}
