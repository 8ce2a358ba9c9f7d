package faulttest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

const (
	exclusiveLease   = 200 * time.Millisecond
	exclusiveHandler = 400 * time.Millisecond // at most
	exclusiveSlots   = 64                     // handlers of one claimer at a time
)

// HeldFor is what a claimer writes down: by the store's clock it had a message from
// until, which ended so.
type HeldFor struct {
	ID          string
	Token       uint64
	Position    string
	From, Until time.Time
	Result      string // of a settlement as done: ok, lost, or another error
}

// Claimers claims from a queue by so many claimers and writes to out what each held, as
// lines of JSON, until nothing was to be claimed for a while. Each handles what it claims
// for a random time, some of it longer than its lease, and settles it; one in ten falls
// silent instead.
func Claimers(s driver.Store, queue string, n int, out io.Writer) {
	var mu sync.Mutex
	lines := json.NewEncoder(out)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			claimer(s, queue, fmt.Sprintf("%d-%d", os.Getpid(), i), func(h HeldFor) { mu.Lock(); _ = lines.Encode(h); mu.Unlock() })
		})
	}
	wg.Wait()
}

func claimer(s driver.Store, queue, instance string, write func(HeldFor)) {
	ctx := context.Background()
	var handlers sync.WaitGroup
	slots := make(chan struct{}, exclusiveSlots)
	for idle := 0; idle < 50; {
		req := driver.ClaimRequest{Queue: queue, Max: 16, Lease: exclusiveLease, Instance: instance}
		req.Isolated = rand.IntN(3) == 0
		got, err := s.Claim(ctx, req)
		if err == nil && len(got) == 0 {
			req.Isolated = !req.Isolated
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
				h := HeldFor{ID: d.ID, Token: d.Receipt.Token, Position: d.Receipt.Position, From: d.LeasedAt, Until: d.LeasedAt.Add(d.Lease)}
				if rand.IntN(10) == 0 {
					h.Result = "silent"
					write(h)
					return
				}
				err := driver.FirstError(s.Settle(ctx, []driver.Settlement{{Receipt: d.Receipt, Outcome: redrive.OutcomeDone}}))
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

// Judge checks what claimers held: by the store's clock no message was held twice at one
// time, and each ended once, by its last holder.
func Judge(t testing.TB, held map[string][]HeldFor) (claims, lost int) {
	t.Helper()
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
	return claims, lost
}
