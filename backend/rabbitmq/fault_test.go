package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/proxytest"
	"github.com/redrive/redrive/internal/rabbittest"
	"github.com/redrive/redrive/internal/servertest"
)

// accept publishes until each of n messages was accepted once. What is not known to be
// accepted is published again, under the same id.
func accept(t testing.TB, s *Source, from, n int) {
	t.Helper()
	for i := from; i < from+n; i++ {
		servertest.Until(t, fmt.Sprintf("message %d is accepted", i), func() bool {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			return driver.FirstError(s.Publish(ctx, []redrive.Message{{Queue: s.o.Queue, ID: strconv.Itoa(i)}})) == nil
		})
	}
}

// TestCutAtEachStep cuts the connections before and after each write to the broker, while
// messages are published, retried and made dead letters by each strategy.
func TestCutAtEachStep(t *testing.T) {
	node := rabbittest.Shared(t)
	for _, strategy := range []Dead{DeadConfirm, DeadTx, DeadDLX} {
		t.Run(string(strategy), func(t *testing.T) {
			t.Parallel()
			proxy := proxytest.New(t, node.Addr())
			s := connect(t, at(proxy.Addr().String(), "queue="+rabbittest.Name(), "declare=true", "dead="+string(strategy)), Options{Native: true})
			const n = 12
			ch := channel(t, node)
			got := make(map[string]int)
			collect := func() {
				for {
					d, ok, err := ch.Get(s.a.deadQueue, true)
					if err != nil {
						t.Fatal(err)
					}
					if !ok {
						return
					}
					got[d.MessageId]++
				}
			}
			for i := range n {
				var steps atomic.Int64
				proxy.Intercept(func(bool) error { // one message goes through with a cut at its step i
					if steps.Add(1) == int64(i+1) {
						return errors.New("cut")
					}
					return nil
				})
				accept(t, s, i, 1)
				servertest.Until(t, fmt.Sprintf("message %d is a dead letter", i), func() bool {
					fail(t, s)
					collect()
					return got[strconv.Itoa(i)] > 0
				})
			}
			proxy.Intercept(nil)
			twice := 0
			for _, times := range got {
				twice += times - 1
			}
			t.Logf("%d dead letters, %d of them twice", n, twice)
		})
	}
}

// fail takes what is there: a first attempt is retried, a second is dead. What is cut
// comes again, or is settled again, as the engine does.
func fail(t testing.TB, s *Source) {
	t.Helper()
	for lane, outcome := range []redrive.Outcome{redrive.OutcomeRetry, redrive.OutcomeDead} {
		ds, _ := s.Claim(context.Background(), driver.ClaimRequest{Queue: s.o.Queue, Lane: redrive.Lane(lane), Max: 10, Lease: time.Minute}) // the connection may be down
		for i := range ds {
			servertest.Until(t, "it is settled, or comes again", func() bool {
				err := settle(s, settled(&ds[i], outcome))
				return err == nil || errors.Is(err, redrive.ErrLeaseLost)
			})
		}
	}
}
