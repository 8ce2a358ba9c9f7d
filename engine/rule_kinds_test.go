package engine_test

import (
	"context"
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/engine"
)

// Messages at which the target hangs leave the others nine tenths of their rate if they are of
// a kind or key of their own, and six tenths if not, whether the others come at a rate or wait
// in a backlog.
func TestRule08_HangingPoison(t *testing.T) {
	const (
		poison = 50
		hangs  = 3 * time.Second
		call   = 100 * time.Millisecond
		window = 2 * time.Minute
	)
	type load struct {
		slots int
		share float64 // of what the slots bear
	}
	all := []load{{20, 0.6}, {20, 1.1}, {64, 0.6}, {64, 1.1}}
	for _, c := range []struct {
		name      string
		kind, key string // of the poison
		least     float64
		loads     []load
	}{
		{"a kind of its own", "poison", "", 0.9, append(all, load{10, 0.6})},
		{"a key of its own", "", "poison", 0.9, append(all, load{10, 1.1})},
		{"like the others", "", "", 0.6, all},
	} {
		for _, l := range c.loads {
			t.Run(fmt.Sprintf("%s, %d slots, load %.1f", c.name, l.slots, l.share), func(t *testing.T) {
				bubble(t, func(t *testing.T, r *rig) {
					if c.key != "" {
						if err := r.store.Configure(t.Context(), "hooks", driver.QueueSettings{OrderByKey: true}); err != nil {
							t.Fatal(err)
						}
					}
					var good atomic.Int64
					r.handle("hooks", func(_ context.Context, d *redrive.Delivery) error {
						if string(d.Body) == "hang" {
							<-time.After(hangs)
							return errSick
						}
						<-time.After(call)
						good.Add(1)
						return nil
					}, engine.QueueOptions{Target: "hooks", Concurrency: l.slots})
					r.start()
					n := 0
					publish := func(d time.Duration) {
						for end := time.Now().Add(d); time.Now().Before(end); {
							for range int(l.share * float64(l.slots)) {
								r.publishAll(redrive.Message{Queue: "hooks", Key: strconv.Itoa(n), Body: []byte("good")})
								n++
							}
							pass(call)
						}
					}
					publish(20 * time.Second)
					before := good.Load()
					for range poison {
						r.publishAll(redrive.Message{Queue: "hooks", Kind: c.kind, Key: c.key, Body: []byte("hang")})
					}
					publish(window)
					rate := float64(good.Load()-before) / window.Seconds()
					usual := min(l.share, 1) * float64(l.slots) / call.Seconds()
					t.Logf("%.0f of %.0f a second", rate, usual)
					if rate < c.least*usual {
						t.Errorf("%.2f of their rate are left", rate/usual)
					}
				})
			})
		}
	}
}

// A kind of slow handlers, which is no poison, gets all slots that the others do not use, and
// as many as its own limit says.
func TestRule08_SlowKindsGetWhatIsLeft(t *testing.T) {
	const slots = 20
	for _, c := range []struct {
		name   string
		mails  int // a second, which take 100 ms
		own    int // limit of the slow kind
		least  int // slots of the slow kind
		atMost int
	}{
		{"single", 0, 0, slots, slots},
		{"beside a few others", 5, 0, slots - 2, slots - 1},
		{"beside many others", 100, 0, slots - 14, slots - 10},
		{"with a limit of its own beside many others", 100, 15, 10, 15},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				var running atomic.Int32
				var mails tally
				mux := redrive.NewMux()
				var limit []redrive.HandleOption
				if c.own > 0 {
					limit = append(limit, redrive.WithConcurrency(c.own))
				}
				mux.Handle("report", redrive.HandlerFunc(func(context.Context, *redrive.Delivery) error {
					running.Add(1)
					defer running.Add(-1)
					<-time.After(10 * time.Second)
					return nil
				}), limit...)
				mux.Handle("mail", redrive.HandlerFunc(func(_ context.Context, d *redrive.Delivery) error {
					<-time.After(100 * time.Millisecond)
					mails.add(d.Kind)
					return nil
				}))
				r.handleWith("jobs", mux, engine.QueueOptions{Concurrency: slots})
				r.start()
				for range 1000 {
					r.publishAll(redrive.Message{Queue: "jobs", Kind: "report"})
				}
				sum, looks := 0, 0
				for i := range 300 {
					for range c.mails {
						r.publishAll(redrive.Message{Queue: "jobs", Kind: "mail"})
						pass(time.Second / time.Duration(c.mails))
					}
					if c.mails == 0 {
						pass(time.Second)
					}
					if i >= 240 {
						sum, looks = sum+int(running.Load()), looks+1
					}
				}
				if mean := sum / looks; mean < c.least || mean > c.atMost {
					t.Errorf("slow ones have %d of %d slots, want %d to %d", mean, slots, c.least, c.atMost)
				}
				t.Logf("slow ones have %.1f of %d slots, %d mails were sent", float64(sum)/float64(looks), slots, mails.sum())
			})
		})
	}
}
