package ws

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/backend/memory"
	"github.com/redrive/redrive/backlog"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/daemon/gateway/session"
)

// TestBacklogLimitsReachTheSession fills a queue: credit shrinks, then nothing is
// acknowledged and hardly anything read; when the queue drains, all goes on, and nothing
// was lost or stored twice.
func TestBacklogLimitsReachTheSession(t *testing.T) {
	t.Parallel()
	var limiter *backlog.Limiter
	store := memory.New()
	limiter = backlog.New(store, func(string) backlog.Limits { return backlog.Limits{Depth: 100} }, backlog.Options{Refresh: 10 * time.Millisecond})
	r := newRigOver(t, store, Options{Apply: limiter.Apply, Level: limiter.Level, Session: session.Options{Window: 50}})
	p, w := r.hello(nil)
	levels := make(map[string]bool)
	limit, acked, sent := w.Limit, uint64(0), uint64(0)
	take := func() bool { // one frame of the server
		f, err := p.read()
		if err != nil {
			t.Fatal(err)
		}
		switch f.Type {
		case "ack":
			acked, limit = f.Seq, max(limit, f.Limit)
		case "credit":
			limit = max(limit, f.Limit)
		case "slow_down":
			levels[f.Level] = true
			return f.Level == "refused"
		}
		return false
	}
	for refused := false; !refused; {
		for sent < min(limit, acked+5) {
			sent++
			p.send(`{"type":"publish","seq":%d,"queue":"q","body":%d}`, sent, sent)
		}
		refused = take()
	}
	if !levels["warn"] || limit-acked > 60 {
		t.Errorf("levels %v, limit %d after %d", levels, limit, acked)
	}
	counts, err := store.Counts(t.Context(), "q")
	if err != nil || counts[0].AllWaiting() > 100 {
		t.Errorf("%+v %v", counts, err)
	}
	// It drains. What waited at the server is stored, in order.
	handled := make(map[string]bool)
	drain := func() {
		ds, err := store.Claim(t.Context(), driver.ClaimRequest{Queue: "q", Max: 1000, Lease: time.Minute, Instance: "i"})
		if err != nil {
			t.Fatal(err)
		}
		for i := range ds {
			if handled[string(ds[i].Body)] {
				t.Errorf("message %s is there twice", ds[i].Body)
			}
			handled[string(ds[i].Body)] = true
			if err := driver.FirstError(store.Settle(t.Context(), []driver.Settlement{{Receipt: ds[i].Receipt, Outcome: redrive.OutcomeDone}})); err != nil {
				t.Fatal(err)
			}
		}
	}
	for acked < 400 {
		drain()
		for sent < min(limit, 400) {
			sent++
			p.send(`{"type":"publish","seq":%d,"queue":"q","body":%d}`, sent, sent)
		}
		take()
	}
	drain()
	if len(handled) != 400 {
		t.Errorf("%d of 400 messages were stored", len(handled))
	}
}

// TestASessionHasABound: a client that never acknowledges results may not publish for
// ever, and may again when it does.
func TestASessionHasABound(t *testing.T) {
	t.Parallel()
	r := newRig(t, Options{Session: session.Options{MaxOutstanding: 20, Window: 50}})
	p, w := r.hello(nil)
	if w.Limit != 20 {
		t.Fatalf("%+v", w)
	}
	for i := range 20 {
		p.send(`{"type":"publish","seq":%d,"queue":"q"}`, i+1)
	}
	for {
		f, err := p.read()
		if err != nil {
			t.Fatal(err)
		}
		if f.Limit > 20 {
			t.Fatalf("more credit than there is room: %+v", f)
		}
		if f.Type == "slow_down" && f.Level == "refused" && f.Queue == "" {
			break
		}
	}
	r.results(w.Session, 1, 5, 10)
	for range 5 {
		p.next("result")
	}
	p.send(`{"type":"result_ack","number":5}`)
	if f := p.next("credit"); f.Limit != 25 {
		t.Errorf("%+v", f)
	}
}

// TestResultsExpire: what nobody acknowledges goes, is counted, and the client hears of
// it when it comes back.
func TestResultsExpire(t *testing.T) {
	t.Parallel()
	r := newRig(t, Options{Results: 300 * time.Millisecond})
	p, w := r.hello(nil)
	p.send(`{"type":"publish","seq":1,"queue":"q"}`)
	p.acked(1)
	_ = p.conn.CloseNow()
	r.eventually("it is away", func() bool { return r.g.Stats().Connected == 0 })
	r.results(w.Session, 1, 3, 10)
	r.eventually("they expire", func() bool { return r.g.Stats().Expired == 3 })
	p, again := r.hello(w)
	if !again.Resumed {
		t.Errorf("%+v", again)
	}
	if f := p.next("gap"); f.Reason != "results_expired" || f.Lost != 3 {
		t.Errorf("%+v", f)
	}
	counts, err := r.store.Counts(t.Context(), driver.ResultQueue)
	if err != nil || counts[0].AllWaiting() != 0 || counts[0].Ledger.Dropped != 3 {
		t.Errorf("%+v %v", counts, err)
	}
}

// TestResultsOfOtherInstances come too, though nobody here saw them being made.
func TestResultsOfOtherInstances(t *testing.T) {
	t.Parallel()
	r := newRig(t, Options{})
	p, w := r.hello(nil)
	m := redrive.Message{ID: "m", Queue: "q", ReplyTo: driver.SessionReply + w.Session + "/7"}
	result, _ := driver.ResultMessage(&m, redrive.OutcomeDone, 0, nil, []byte("x"))
	if err := driver.FirstError(r.store.Publish(t.Context(), []redrive.Message{result})); err != nil {
		t.Fatal(err)
	}
	if f := p.next("result"); f.Number != 1 || f.Seq != 7 || f.ID != "m" || f.Outcome != "done" {
		t.Errorf("%+v", f)
	}
}

// TestRefusalsAreKept until the client has seen them, and only then forgotten.
func TestRefusalsAreKept(t *testing.T) {
	t.Parallel()
	none := errors.New("no such queue")
	r := newRig(t, Options{AllowQueue: func(q string) error {
		if q == "none" {
			return fmt.Errorf("%w: %w", redrive.ErrInvalid, none)
		}
		return nil
	}})
	p, w := r.hello(nil)
	p.send(`{"type":"publish","seq":1,"queue":"none"}`)
	p.send(`{"type":"publish","seq":2,"queue":"q","id":"a","body":1}`)
	p.send(`{"type":"publish","seq":3,"queue":"q","id":"a","body":2}`)
	p.send(`{"type":"publish","seq":4,"queue":"q","delay":"-1s"}`)
	p.send(`{"type":"publish","seq":5,"queue":"q","id":"a","body":1}`)
	p.send(`{"type":"publish","seq":6,"queue":"q","cloudevent":{"specversion":"1.0","id":"e","source":"/s","type":"t"}}`)
	p.send(`{"type":"publish","seq":7,"queue":"q","cloudevent":{"id":"e"}}`)
	refused := make(map[uint64]string)
	for seq := uint64(0); seq < 7; {
		f := p.next("ack")
		seq = f.Seq
		for _, e := range f.Errors {
			refused[e.Seq] = string(e.Error)
		}
	}
	if len(refused) != 5 {
		t.Errorf("%v", refused)
	}
	_ = p.conn.CloseNow()
	p, again := r.hello(w)
	if len(again.Errors) != 5 || again.Seq != 7 || again.Errors[0].Seq != 1 || again.Errors[4].Seq != 7 {
		t.Errorf("%+v", again)
	}
	p.send(`{"type":"seen","seq":7}`)
	p.send(`{"type":"publish","seq":8,"queue":"q"}`)
	p.acked(8)
	_, again = r.hello(w)
	if len(again.Errors) != 0 {
		t.Errorf("after seen: %+v", again.Errors)
	}
}
