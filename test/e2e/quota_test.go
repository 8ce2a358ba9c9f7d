package e2e

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redrive/redrive/internal/pgtest"
)

// TestAQuotaHoldsOverTwoDaemons publishes through two daemons on one PostgreSQL store until
// both refuse: together they grant the token's quota within 1 %, also after one was killed
// and started again.
func TestAQuotaHoldsOverTwoDaemons(t *testing.T) {
	t.Parallel()
	const quota = 2000
	const token = "a-token-of-the-test-with-enough-letters"
	s := pgtest.Start(t, nil)
	yaml := fmt.Sprintf("queues: {q: {}}\ntokens:\n  - {name: test, hash: \"sha256:%x\", scopes: [publish, read], quota: %d/day}\n", sha256.Sum256([]byte(token)), quota)
	both := []*daemon{newDaemonOn(t, s.URL(), yaml), newDaemonOn(t, s.URL(), yaml)}
	publish := func(d *daemon) int {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, d.url+"/v1/queues/q/messages", strings.NewReader("x"))
		if err != nil {
			t.Error(err)
			return 0
		}
		req.Header.Set("Authorization", "Bearer "+token)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Error(err)
			return 0
		}
		_ = resp.Body.Close()
		return resp.StatusCode
	}
	var mu sync.Mutex
	granted := 0
	// drain publishes until a daemon refuses, or until it has granted most.
	drain := func(d *daemon, most int) {
		for range most {
			switch status := publish(d); status {
			case http.StatusAccepted:
				mu.Lock()
				granted++
				mu.Unlock()
			case http.StatusTooManyRequests:
				return
			default:
				t.Errorf("answered %d", status)
				return
			}
		}
	}
	at := func(most int) {
		var wg sync.WaitGroup
		for _, d := range both {
			for range 4 {
				wg.Go(func() { drain(d, most) })
			}
		}
		wg.Wait()
	}
	at(quota / 20) // less than half of it
	both[1].kill()
	both[1].start()
	at(quota)
	at(quota) // what one of them had taken and given back
	if granted > quota*101/100 || granted < quota*99/100 {
		t.Errorf("%d of %d were granted", granted, quota)
	}
}
