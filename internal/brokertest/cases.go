package brokertest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/deadletter"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/engine"
	"github.com/redrive/redrive/internal/servertest"
)

// soon retries after 10 ms.
func soon(*redrive.Message) *redrive.Policy {
	return &redrive.Policy{Backoff: redrive.Fixed{Interval: 10 * time.Millisecond}, MaxAttempts: 5}
}

// doneOnce has messages handled by an engine and, after a restart, by another.
func doneOnce(t *testing.T, b *Broker) {
	r := newRig(t, b)
	const n = 300
	Publish(t, r.source, n)
	stop := r.consume(nil, engine.QueueOptions{})
	r.untilHandled(n)
	stop()
	for i := range n {
		d := r.of(id(i))
		if len(d) != 1 {
			t.Fatalf("%s was handled %d times", id(i), len(d))
		}
		header, _ := d[0].Headers.Get("n")
		if string(d[0].Body) != body(i) || d[0].Kind != "text" || header != fmt.Sprint(i) || d[0].Attempt != 1 || d[0].Suspect {
			t.Errorf("%+v", d[0])
		}
	}
	r.reopen()
	stop = r.consume(nil, engine.QueueOptions{})
	if err := driver.FirstError(r.source.Publish(t.Context(), []redrive.Message{{Queue: Queue, ID: "last"}})); err != nil {
		t.Fatal(err)
	}
	r.untilHandled(n + 1)
	stop()
	if _, again := r.handled(); again != 0 {
		t.Errorf("%d were done and came again", again)
	}
	if c := r.counts(); c.Ledger.Parked != 0 {
		t.Errorf("%d went through the store", c.Ledger.Parked)
	}
}

func retriesAreParked(t *testing.T, b *Broker) {
	r := newRig(t, b)
	const n, failing = 30, 10
	Publish(t, r.source, n)
	stop := r.consume(func(_ context.Context, d *redrive.Delivery) error {
		var content struct{ N int }
		if err := json.Unmarshal(d.Body, &content); err != nil {
			return err
		}
		if content.N < failing && d.Attempt < 3 {
			return fmt.Errorf("attempt %d: the line is busy", d.Attempt)
		}
		return nil
	}, engine.QueueOptions{Policy: soon})
	servertest.Until(t, "all are done", func() bool {
		got, again := r.handled()
		return got == n && again == 2*failing && r.counts().Ledger.Done == failing
	})
	stop()
	for i := range failing {
		for at, d := range r.of(id(i)) {
			if d.Attempt != at+1 || d.Failures != at || string(d.Body) != body(i) {
				t.Errorf("attempt %d of %s: %+v", at+1, id(i), d)
			}
		}
	}
	r.reopen()
	if c := r.counts(); c.Ledger.Parked != failing || c.AllWaiting() != 0 {
		t.Errorf("%+v", c)
	}
	r.balanced()
}

func deadLettersAreParked(t *testing.T, b *Broker) {
	r := newRig(t, b)
	Publish(t, r.source, 40)
	healed := make(chan struct{})
	r.consume(func(_ context.Context, d *redrive.Delivery) error {
		select {
		case <-healed:
			return nil
		default:
		}
		switch d.ID {
		case "m7":
			return redrive.Permanent(errors.New("no such number"))
		case "m30":
			return errors.New("the line is busy")
		}
		return nil
	}, engine.QueueOptions{Policy: soon})
	servertest.Until(t, "two are dead", func() bool { c := r.counts(); return c.AllDead() == 2 })
	e := r.entry("m7")
	if e.Reason != redrive.ReasonPermanent || string(e.Body) != body(7) || e.Kind != "text" || e.Attempts != 1 || e.Origin == "" ||
		e.History.Latest() == nil || !strings.Contains(e.History.Latest().Message, "no such number") {
		t.Errorf("%+v", e)
	}
	e = r.entry("m30")
	if e.Reason != redrive.ReasonExhausted || e.Attempts != 5 || e.History.Count != 5 || e.History.First == nil || e.History.Last == nil || e.History.Last.Attempt != 5 {
		t.Errorf("%+v", e)
	}
	close(healed)
	if err := deadletter.Redrive(t.Context(), r.store, redrive.Ref{Queue: Queue, ID: "m7"}, redrive.Ref{Queue: Queue, ID: "m30"}); err != nil {
		t.Fatal(err)
	}
	servertest.Until(t, "they are delivered", func() bool { return r.counts().Ledger.Done == 2 })
	if ds := r.of("m7"); len(ds) != 2 || string(ds[1].Body) != body(7) || ds[1].Lane != redrive.LaneRedrive {
		t.Errorf("%+v", ds)
	}
	r.balanced()
}

// emitsAndRepeats has each message publish another, and one repeat itself.
func emitsAndRepeats(t *testing.T, b *Broker) {
	r := newRig(t, b)
	const n = 20
	Publish(t, r.source, n)
	r.consume(func(ctx context.Context, d *redrive.Delivery) error {
		if d.Generation > 0 || d.Kind == "echo" {
			return nil
		}
		if d.ID == "m3" {
			return redrive.RepeatAfter(10 * time.Millisecond)
		}
		return redrive.Emit(ctx, redrive.Message{Queue: Queue, ID: d.ID + "-echo", Kind: "echo", Body: d.Body})
	}, engine.QueueOptions{})
	r.untilHandled(n + n - 1)
	servertest.Until(t, "m3 is repeated", func() bool { return len(r.of("m3")) == 2 })
	if _, again := r.handled(); again != 1 {
		t.Errorf("%d were handled again", again)
	}
}

// shutdownGivesBack cancels handlers and expects their messages again, as if nothing had
// happened.
func shutdownGivesBack(t *testing.T, b *Broker) {
	r := newRig(t, b)
	const n = 8
	Publish(t, r.source, n)
	begun := make(chan struct{}, n)
	stop := Consume(t, r.store, time.Millisecond, func(ctx context.Context, _ *redrive.Delivery) error {
		begun <- struct{}{}
		<-ctx.Done()
		return ctx.Err()
	}, engine.QueueOptions{Sources: []driver.Source{r.source}, Concurrency: n})
	for range n {
		<-begun
	}
	stop()
	r.reopen()
	r.consume(nil, engine.QueueOptions{})
	r.untilHandled(n)
	for i := range n {
		if ds := r.of(id(i)); len(ds) != 1 || ds[0].Suspect || ds[0].Attempt != 1 || ds[0].Failures != 0 {
			t.Errorf("%+v", ds)
		}
	}
}

// membersShare has two consumers of one queue, both of which get some of it.
func membersShare(t *testing.T, b *Broker) {
	r := newRig(t, b)
	other := b.open(t, r.address)
	var stops []func()
	got := make(chan int, 1<<16)
	for member, source := range []driver.Source{r.source, other} {
		stops = append(stops, r.consume(func(context.Context, *redrive.Delivery) error {
			got <- member
			return nil
		}, engine.QueueOptions{Sources: []driver.Source{source}, Concurrency: 2}))
	}
	n, of := 0, [2]int{}
	servertest.Until(t, "both get some", func() bool {
		msgs := make([]redrive.Message, 20)
		for i := range msgs {
			msgs[i] = redrive.Message{Queue: Queue, ID: id(n), Key: id(n)}
			n++
		}
		if err := driver.FirstError(r.source.Publish(t.Context(), msgs)); err != nil {
			t.Fatal(err)
		}
		for range msgs {
			of[<-got]++
		}
		return of[0] > 0 && of[1] > 0
	})
	for _, stop := range stops {
		stop()
	}
	if messages, again := r.handled(); messages != n || again != 0 {
		t.Errorf("%d of %d were handled, %d again", messages, n, again)
	}
}

func messagesOfOthers(t *testing.T, b *Broker) {
	if b.Foreign == nil {
		t.Skip("not offered: messages of others")
	}
	r := newRig(t, b)
	b.Foreign(t, r.address, `{"a":1}`, "\x00\xff", "third")
	stop := r.consume(func(_ context.Context, d *redrive.Delivery) error {
		if string(d.Body) == "third" {
			return redrive.Permanent(errors.New("not the third"))
		}
		return nil
	}, engine.QueueOptions{})
	servertest.Until(t, "the third is dead", func() bool { c := r.counts(); return c.AllDead() == 1 })
	r.untilHandled(3)
	stop()
	bodies := make(map[string]string)
	for name, ds := range r.seen {
		bodies[string(ds[0].Body)] = name
		if len(ds) != 1 || redrive.CheckID(name) != nil || ds[0].Origin == "" {
			t.Errorf("%+v", ds)
		}
	}
	if bodies[`{"a":1}`] == "" || bodies["\x00\xff"] == "" {
		t.Errorf("the bodies are %q", bodies)
	}
	if e := r.entry(bodies["third"]); string(e.Body) != "third" || e.Reason != redrive.ReasonPermanent {
		t.Errorf("%+v", e)
	}
}

func undecodableIsDead(t *testing.T, b *Broker) {
	if b.Foreign == nil {
		t.Skip("not offered: messages of others")
	}
	r := newRig(t, b)
	b.Foreign(t, r.address, `{"n":1}`, `{"n":`, `{"n":3}`)
	numbers := make(chan int, 3)
	mux := redrive.NewMux()
	redrive.Handle(mux, "", func(_ context.Context, body struct{ N int }) error {
		numbers <- body.N
		return nil
	})
	r.consume(mux.Handle, engine.QueueOptions{})
	if sum := <-numbers + <-numbers; sum != 4 {
		t.Errorf("the bodies that can be decoded sum up to %d, want 4", sum)
	}
	servertest.Until(t, "one is dead", func() bool { return r.counts().Dead[redrive.ReasonUndecodable] == 1 })
	page, err := r.store.Find(t.Context(), redrive.Query{Queue: Queue, Bodies: true})
	if err != nil || len(page.Entries) != 1 || string(page.Entries[0].Body) != `{"n":` || page.Entries[0].Attempts != 1 {
		t.Errorf("%+v, %v", page, err)
	}
}

// slowMessage keeps one handler busy until all that stand behind it are done.
func slowMessage(t *testing.T, b *Broker) {
	r := newRig(t, b)
	const n = 1000
	Publish(t, r.source, n)
	others := make(chan struct{})
	r.consume(func(ctx context.Context, d *redrive.Delivery) error {
		if d.ID != "m0" {
			return nil
		}
		select {
		case <-others:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}, engine.QueueOptions{})
	r.untilHandled(n)
	close(others)
}
