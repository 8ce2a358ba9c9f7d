package engine_test

import (
	"context"
	"testing"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/engine"
)

// flips changes a byte of what is stored, as a bad disk does.
func (r *rig) flips(queue string, ids ...string) {
	r.t.Helper()
	for _, id := range ids {
		r.entry(queue, id).Body[0] ^= 1
	}
}

// buried checks what became of corrupt messages, and drops them.
func (r *rig) buried(queue string, ids ...string) {
	r.t.Helper()
	signatures := map[string]bool{}
	for _, id := range ids {
		e := r.dead(queue, id)
		f := e.History.Latest()
		if e.Reason != redrive.ReasonCorrupt || f == nil || f.Message != "the message does not match its checksum" || f.Signature == "" {
			r.t.Errorf("%s is dead as %s: %+v", id, e.Reason, f)
			continue
		}
		signatures[f.Signature] = true
		c := driver.Change{Action: driver.ActDrop}
		if _, err := r.store.Update(context.Background(), driver.Selection{Refs: []redrive.Ref{e.Ref()}}, c, 1); err != nil {
			r.t.Fatal(err)
		}
	}
	if len(signatures) != 1 {
		r.t.Errorf("signatures %v, want one", signatures)
	}
}

// A message that does not match its checksum is a dead letter that no handler saw, in each
// lane, isolated, and when it expired.
func TestCorruptMessagesAreNotHandled(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var handled []string
		fails := true
		h := func(_ context.Context, d *redrive.Delivery) error {
			handled = append(handled, d.ID)
			if d.ID == "q-2" && fails {
				return errSick
			}
			return nil
		}
		r.publish("q", 3)
		r.publishAll(redrive.Message{Queue: "q", ID: "old", Body: []byte("body"), ExpiresAt: time.Now().Add(-time.Second)})
		r.flips("q", "q-0", "old")
		r.handle("q", h, engine.QueueOptions{Concurrency: 1, Policies: engine.Policies{Default: redrive.Policy{Backoff: redrive.Fixed{Interval: time.Minute}, DropExpired: true}}})
		r.start()
		r.within(time.Second, "the retry waits", func() bool { c := r.counts("q"); return c.AllDead() == 2 && c.AllWaiting() == 1 })
		r.flips("q", "q-2")
		fails = false
		r.ended(2*time.Minute, "q")
		if len(handled) != 2 || handled[0] != "q-1" || handled[1] != "q-2" {
			t.Errorf("handled %v, want q-1 and q-2 once", handled)
		}
		r.buried("q", "q-0", "q-2", "old")
	})
}

// A worker is not given what does not match its checksum.
func TestPullHandsOutNothingCorrupt(t *testing.T) {
	pullRig(t, redrive.Policy{}, func(t *testing.T, r *rig, pull *engine.Puller) {
		r.publish("q", 3)
		r.flips("q", "q-0", "q-2")
		ds := claimed(t, pull, engine.PullRequest{Queue: "q", Max: 10, Wait: time.Second})
		if len(ds) != 1 || ds[0].ID != "q-1" {
			t.Errorf("claimed %+v", ds)
		}
		if out := settled(t, pull, done(ds...)...); out[0].Err != nil {
			t.Error(out)
		}
		r.buried("q", "q-0", "q-2")
	})
}
