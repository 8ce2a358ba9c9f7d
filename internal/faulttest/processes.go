package faulttest

import (
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"sync"
	"syscall"
	"testing"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/childtest"
)

// Processes are claimers in processes of their own, which run [Claimers].
type Processes struct {
	Store driver.Store // of the test
	Queue string
	Part  childtest.Part // of the claimers
	Words []string       // for them
}

// start starts one process.
func (p *Processes) start(t testing.TB) (*exec.Cmd, io.Reader) {
	t.Helper()
	cmd := p.Part.Command(t, p.Words...)
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatalf("a process of claimers: %v", err)
	}
	return cmd, out
}

// publish publishes messages whose ids are numbers.
func (p *Processes) publish(t testing.TB, n int) {
	t.Helper()
	const batch = 500
	for from := 0; from < n; from += batch {
		msgs := make([]redrive.Message, min(batch, n-from))
		for i := range msgs {
			msgs[i] = redrive.Message{Queue: p.Queue, ID: fmt.Sprint(from + i)}
		}
		if err := driver.FirstError(p.Store.Publish(t.Context(), msgs)); err != nil {
			t.Fatal(err)
		}
	}
}

// HeldOnce has n messages claimed in four processes, with leases shorter than many
// handlers, and judges what they held.
func (p *Processes) HeldOnce(t *testing.T, n int) {
	t.Helper()
	p.publish(t, n)
	var mu sync.Mutex
	held := map[string][]HeldFor{}
	var wg sync.WaitGroup
	for range 4 {
		cmd, out := p.start(t)
		wg.Go(func() {
			lines := json.NewDecoder(out)
			for {
				var h HeldFor
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
	claims, lost := Judge(t, held)
	if len(held) != n {
		t.Errorf("%d of %d messages were claimed", len(held), n)
	}
	t.Logf("%d claims of %d messages, %d stale settlements refused", claims, n, lost)
	Audited(t, p.Store)
}

// Killed has processes die in the middle of work one after the other, and a last one
// carry out what they left: each of n messages ends once.
func (p *Processes) Killed(t *testing.T, n int) {
	t.Helper()
	p.publish(t, n)
	const rounds, most = 3, 100 // the last is not killed; the others after so many messages
	ended := map[string]int{}
	for round := range rounds {
		cmd, out := p.start(t)
		lines := json.NewDecoder(out)
		for seen := 0; ; seen++ {
			var h HeldFor
			if lines.Decode(&h) != nil {
				break
			}
			if h.Result == "ok" {
				ended[h.ID]++
			}
			if round < rounds-1 && seen == most {
				if err := cmd.Process.Signal(syscall.SIGKILL); err != nil {
					t.Fatal(err)
				}
			}
		}
		_ = cmd.Wait() // it was killed
	}
	for _, e := range Entries(t, p.Store, p.Queue) {
		t.Errorf("%s is left, and was settled %d times", e.ID, ended[e.ID])
	}
	for id, times := range ended {
		if times != 1 {
			t.Errorf("%s ended %d times", id, times)
		}
	}
	c, err := p.Store.Counts(t.Context(), p.Queue)
	if err != nil {
		t.Fatal(err)
	}
	if c[0].Ledger.Done != int64(n) {
		t.Errorf("%d done of %d", c[0].Ledger.Done, n)
	}
	Audited(t, p.Store)
}
