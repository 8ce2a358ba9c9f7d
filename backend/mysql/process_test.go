package mysql

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/internal/faulttest"
)

// Claimers in processes of their own are this test binary, run anew with a prefix in
// its environment.
const (
	claimerEnv = "REDRIVE_TEST_CLAIMER" // the prefix
	urlEnv     = "REDRIVE_TEST_URL"
)

const exclusiveMessages = 500 // a round; each is claimed about 1.7 times

// claimers is one process of claimers.
func claimers(prefix string) error {
	s, err := Open(context.Background(), os.Getenv(urlEnv), WithPrefix(prefix))
	if err != nil {
		return err
	}
	faulttest.Claimers(s, "a", 4, os.Stdout)
	return s.Close()
}

// runClaimers starts a process of claimers.
func runClaimers(t testing.TB, s *Store) (*exec.Cmd, io.Reader) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), claimerEnv+"="+s.sql.prefix, urlEnv+"="+server.URL(database))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	noErr(t, err)
	noErr(t, cmd.Start())
	return cmd, out
}

func publishNumbered(t testing.TB, s *Store, from, n int) {
	t.Helper()
	msgs := make([]redrive.Message, n)
	for i := range msgs {
		msgs[i] = redrive.Message{Queue: "a", ID: fmt.Sprint(from + i)}
	}
	noErr(t, redrive.FirstError(s.Publish(t.Context(), msgs)))
}

// Sixteen claimers in four processes, leases shorter than many handlers.
func TestNoMessageIsHeldTwice(t *testing.T) {
	s := open(t)
	n := exclusiveMessages * proofRounds(t, 2)
	for from := 0; from < n; from += exclusiveMessages {
		publishNumbered(t, s, from, exclusiveMessages)
	}
	var mu sync.Mutex
	held := map[string][]faulttest.HeldFor{}
	var wg sync.WaitGroup
	for range 4 {
		cmd, out := runClaimers(t, s)
		wg.Go(func() {
			lines := json.NewDecoder(out)
			for {
				var h faulttest.HeldFor
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
	claims, lost := faulttest.Judge(t, held)
	if len(held) != n {
		t.Errorf("%d of %d messages were claimed", len(held), n)
	}
	t.Logf("%d claims of %d messages, %d stale settlements refused", claims, n, lost)
	audited(t, s)
}

// A worker process that is killed in the middle of work leaves everything to others.
func TestKilledWorkerLosesNothing(t *testing.T) {
	s := open(t)
	const n = 600
	publishNumbered(t, s, 0, n)
	ended := map[string]int{}
	for round := range 3 {
		cmd, out := runClaimers(t, s)
		lines := json.NewDecoder(out)
		for seen := 0; ; seen++ {
			var h faulttest.HeldFor
			if lines.Decode(&h) != nil {
				break
			}
			if h.Result == "ok" {
				ended[h.ID]++
			}
			if round < 2 && seen == 100 {
				noErr(t, cmd.Process.Signal(syscall.SIGKILL))
			}
		}
		_ = cmd.Wait()
	}
	for _, e := range faulttest.Entries(t, s, "a") {
		t.Errorf("%s is left, and was settled %d times", e.ID, ended[e.ID])
	}
	for id, times := range ended {
		if times != 1 {
			t.Errorf("%s ended %d times", id, times)
		}
	}
	c, err := s.Counts(t.Context(), "a")
	noErr(t, err)
	if c[0].Books.Done != n {
		t.Errorf("%d done of %d", c[0].Books.Done, n)
	}
	audited(t, s)
}
