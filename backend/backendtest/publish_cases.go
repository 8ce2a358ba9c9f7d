package backendtest

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

var publishCases = []testCase{
	{name: "01_RoundTripBytes", run: roundTripBytes, basic: true},
	{name: "02_HeadersExact", run: headersExact, basic: true},
	{name: "03_IDStable", run: idStable, basic: true},
	{name: "04_DedupConcurrent32", run: dedupConcurrent, needs: []need{remembers}, basic: true},
	{name: "05_DedupAfterSettle", run: dedupAfterSettle, needs: []need{remembers}, basic: true},
	{name: "06_DedupAfterWindow", run: dedupAfterWindow, needs: []need{remembers, advance}},
	{name: "07_BatchResultPerItem", run: batchResultPerItem, needs: []need{remembers}, basic: true},
	{name: "08_OversizeIsPermanentError", run: oversize, basic: true},
	{name: "09_ContextCancelledBeforeCommit", run: cancelledPublish},
	{name: "10_UnknownOutcomeThenDedupRetry", run: unknownPublish, needs: []need{remembers}, basic: true},
	{name: "11_BackpressureRejectsStoresNothing", run: backpressure},
	{name: "12_QueueNamesHostile", run: hostileQueueNames},
	{name: "13_MasksDecideWhatIsTheSame", run: dedupByMasks, needs: []need{remembers, masked}},
}

// noise is n bytes that are the same on each run.
func noise(n int) []byte {
	b := make([]byte, n)
	r := rand.NewChaCha8([32]byte{1})
	_, _ = r.Read(b)
	return b
}

func roundTripBytes(c *C) {
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	bodies := map[string][]byte{
		"empty": {}, "one": {0}, "nul": []byte("a\x00b\x00"), "not-utf8": []byte("\xff\xfe\xc3\x28"),
		"every": every, "newlines": []byte("\r\n\n\r"), "mebibyte": noise(1 << 20),
	}
	for id, body := range bodies {
		c.publish(redrive.Message{ID: id, Body: body, Kind: "k", Key: "key ü"})
	}
	got := c.get(len(bodies), c.ask(len(bodies)))
	for i := range got {
		if d := &got[i]; !bytes.Equal(d.Body, bodies[d.ID]) || d.Kind != "k" || d.Key != "key ü" || d.Queue != c.q {
			c.Errorf("%s came back changed: %d bytes, kind %q, key %q, queue %q", d.ID, len(d.Body), d.Kind, d.Key, d.Queue)
		}
	}
	c.done(got...)
}

func headersExact(c *C) {
	var want redrive.Headers
	for _, h := range [][2]string{
		{"b", "2"}, {"a", "1"}, {"A", "upper"}, {"a", "again"}, {"empty", ""}, {"bytes", "\x00\xff\n"},
		{"x-ümlaut", "é"}, {"large", strings.Repeat("x", 8<<10)}, {"with space", "="}, {"a", "last"},
	} {
		want.Add(h[0], h[1])
	}
	c.publish(redrive.Message{ID: "h", Headers: want})
	d := c.one(c.ask(1))
	sameHeaders(c, d.Headers, want)
	c.done(d)
}

func sameHeaders(c *C, got, want redrive.Headers) {
	c.Helper()
	if !slices.EqualFunc(got, want, func(a, b redrive.Header) bool { return a.Name == b.Name && bytes.Equal(a.Value, b.Value) }) {
		c.Errorf("headers came back as %d bytes in %d headers %.200q, want %d bytes in %d", got.Size(), len(got), got, want.Size(), len(want))
	}
}

func idStable(c *C) {
	msgs := c.publish(redrive.Message{ID: "A-z_0:9"}, redrive.Message{}, redrive.Message{})
	if msgs[1].ID == "" || msgs[1].ID == msgs[2].ID || driver.CheckID(msgs[1].ID) != nil {
		c.Fatalf("generated ids %q and %q", msgs[1].ID, msgs[2].ID)
	}
	got := c.get(3, c.ask(3))
	c.sameSet("ids", ids(got), idsOf(msgs))
	for i := range got {
		c.noError(c.settle(release(got[i], 0)), "release")
	}
	again := c.get(3, c.ask(3))
	c.sameSet("ids of the redelivery", ids(again), idsOf(msgs))
	c.done(again...)
}

func dedupConcurrent(c *C) {
	var stored, duplicates atomic.Int32
	var wg sync.WaitGroup
	for range 32 {
		wg.Go(func() {
			err := driver.FirstError(c.sink.Publish(c.ctx, []redrive.Message{{Queue: c.q, ID: "same", Body: []byte("b")}}))
			switch {
			case err == nil:
				stored.Add(1)
			default:
				c.is(err, "publish", redrive.ErrDuplicate)
				duplicates.Add(1)
			}
		})
	}
	wg.Wait()
	if stored.Load() != 1 || duplicates.Load() != 31 {
		c.Errorf("stored %d times, %d duplicates; want 1 and 31", stored.Load(), duplicates.Load())
	}
	c.equal("what is there", c.rest(1), []string{"same"})
}

func dedupAfterSettle(c *C) {
	for _, o := range []redrive.Outcome{redrive.OutcomeDone, redrive.OutcomeDrop, redrive.OutcomeDead} {
		if o == redrive.OutcomeDead && !c.caps.DeadLetters {
			continue
		}
		m := redrive.Message{Queue: c.q, ID: "m-" + o.String(), Body: []byte("b"), Kind: "k"}
		c.publish(m)
		d := c.one(c.ask(1))
		s := settled(d, o)
		s.Reason = redrive.ReasonPermanent
		c.noError(c.settle(s), "settle")
		c.is(driver.FirstError(c.sink.Publish(c.ctx, []redrive.Message{m})), "the same again after "+o.String(), redrive.ErrDuplicate)
		m.Body = []byte("other")
		c.is(driver.FirstError(c.sink.Publish(c.ctx, []redrive.Message{m})), "another body after "+o.String(), redrive.ErrConflict)
		m.Body, m.Kind = []byte("b"), "other"
		c.is(driver.FirstError(c.sink.Publish(c.ctx, []redrive.Message{m})), "another kind after "+o.String(), redrive.ErrConflict)
	}
	c.none(c.ask(1))
	c.holds(0, 1)
}

// masked is the need of a store that takes masks.
func masked(c *C) string {
	_, ok := driver.As[driver.Masked](c.sink)
	return missing(!ok, "masks")
}

// dedupByMasks repeats messages that differ only in what a mask hides, their last byte:
// while they wait and when they are done, under ids of the caller's own and under such as a
// store makes.
func dedupByMasks(c *C) {
	of, _ := driver.As[driver.Masked](c.sink)
	of.SetMasks(driver.Masks{Body: func(m *redrive.Message) []byte { return m.Body[:max(len(m.Body)-1, 0)] }})
	ids := []string{"chosen", redrive.NewID()}
	again := func(when string) {
		for _, id := range ids {
			for body, want := range map[string]error{"shown-1": redrive.ErrDuplicate, "shown-2": redrive.ErrDuplicate, "other-1": redrive.ErrConflict} {
				err := driver.FirstError(c.sink.Publish(c.ctx, []redrive.Message{{Queue: c.q, ID: id, Body: []byte(body)}}))
				c.is(err, fmt.Sprintf("%s as %s, %s", id, body, when), want)
			}
		}
	}
	for _, id := range ids {
		c.publish(redrive.Message{ID: id, Body: []byte("shown-1")})
	}
	again("while it waits")
	for _, d := range c.get(len(ids), c.ask(len(ids))) {
		if string(d.Body) != "shown-1" {
			c.Errorf("%s holds %q", d.ID, d.Body)
		}
		c.done(d)
	}
	again("when it is done")
}

func dedupAfterWindow(c *C) {
	c.configure(driver.QueueSettings{Remember: time.Hour})
	m := redrive.Message{Queue: c.q, ID: "m", Body: []byte("b")}
	c.publish(m)
	c.done(c.one(c.ask(1)))
	c.pass(30 * time.Minute)
	c.is(driver.FirstError(c.sink.Publish(c.ctx, []redrive.Message{m})), "within the window", redrive.ErrDuplicate)
	c.pass(48 * time.Hour)
	for range 100 {
		t, err := c.store.Trim(c.ctx, driver.Retention{}, 1000)
		c.noError(err, "trim")
		if t == (driver.Trimmed{}) {
			break
		}
	}
	m.Body = []byte("another life")
	c.publish(m)
	d := c.one(c.ask(1))
	if string(d.Body) != "another life" {
		c.Errorf("body %q", d.Body)
	}
	c.done(d)
}

func batchResultPerItem(c *C) {
	c.publish(redrive.Message{ID: "there", Body: []byte("b")})
	msgs := []redrive.Message{
		{Queue: c.q, ID: "good-1"},
		{Queue: c.q, ID: "not an id"},
		{Queue: c.q, ID: "there", Body: []byte("b")},
		{Queue: c.q, ID: "there", Body: []byte("other")},
		{Queue: "Not A Queue", ID: "x"},
		{Queue: c.q, ID: "good-2", Delay: -1},
		{Queue: c.q, ID: "twice"},
		{Queue: c.q, ID: "twice"},
		{Queue: c.q, ID: "good-3"},
	}
	errs := c.sink.Publish(c.ctx, msgs)
	if len(errs) != len(msgs) {
		c.Fatalf("%d results for %d messages", len(errs), len(msgs))
	}
	want := []error{nil, redrive.ErrInvalid, redrive.ErrDuplicate, redrive.ErrConflict, redrive.ErrInvalid, redrive.ErrInvalid, nil, redrive.ErrDuplicate, nil}
	for i := range msgs {
		c.is(errs[i], fmt.Sprintf("item %d (%s)", i, msgs[i].Ref()), want[i])
	}
	c.sameSet("what was stored", c.rest(4), []string{"there", "good-1", "twice", "good-3"})
}

func oversize(c *C) {
	var many redrive.Headers
	for range redrive.MaxHeaders + 1 {
		many.Add("a", "b")
	}
	for what, m := range map[string]redrive.Message{
		"body":    {Body: make([]byte, redrive.MaxBodySize+1)},
		"header":  {Headers: redrive.Headers{{Name: "h", Value: make([]byte, redrive.MaxHeaderSize)}}},
		"headers": {Headers: many},
		"id":      {ID: strings.Repeat("i", redrive.MaxIDLength+1)},
		"key":     {Key: strings.Repeat("k", redrive.MaxKeyLength+1)},
		"kind":    {Kind: strings.Repeat("k", redrive.MaxKindLength+1)},
	} {
		m.Queue = c.q
		errs := c.sink.Publish(c.ctx, []redrive.Message{m, {Queue: c.q, ID: "beside-" + what}})
		c.is(at(errs, 0), "oversize "+what, redrive.ErrInvalid)
		c.is(at(errs, 1), "the message beside it", nil)
	}
	c.done(c.get(6, c.ask(6))...)
	c.none(c.ask(1))
}

func cancelledPublish(c *C) {
	ctx, cancel := context.WithCancel(c.ctx)
	cancel()
	if err := at(c.sink.Publish(ctx, []redrive.Message{{Queue: c.q, ID: "dead-context"}}), 0); err == nil {
		c.Errorf("published under a context that had ended")
	}
	c.inState("dead-context", 0)
	const rounds = 60
	for i := range rounds {
		id := fmt.Sprintf("m%02d", i)
		ctx, cancel := context.WithCancel(c.ctx)
		started := make(chan struct{})
		var wg sync.WaitGroup
		wg.Go(func() {
			<-started
			cancel()
		})
		close(started)
		err := at(c.sink.Publish(ctx, []redrive.Message{{Queue: c.q, ID: id}}), 0)
		wg.Wait()
		e := c.lookUp(c.q, id)
		switch known := err == nil || !isUnknown(err); {
		case err == nil && e == nil:
			c.Errorf("%s was accepted and is not there", id)
		case known && err != nil && e != nil:
			c.Errorf("%s was refused (%v) and is there", id, err)
		}
	}
}

func unknownPublish(c *C) {
	m := redrive.Message{Queue: c.q, ID: "m", Body: []byte("b")}
	c.publish(m) // the answer is lost
	c.is(driver.FirstError(c.sink.Publish(c.ctx, []redrive.Message{m})), "the repetition", nil, redrive.ErrDuplicate)
	d := c.one(c.ask(2))
	c.is(driver.FirstError(c.sink.Publish(c.ctx, []redrive.Message{m})), "the repetition while it is handled", redrive.ErrDuplicate)
	c.done(d)
	c.is(driver.FirstError(c.sink.Publish(c.ctx, []redrive.Message{m})), "the repetition after it was handled", redrive.ErrDuplicate)
	c.none(c.ask(1))
	if c.store == nil {
		return
	}
	if n := c.counts().Ledger; n.Published != 1 || n.Done != 1 {
		c.Errorf("ledger %+v", n)
	}
}

func hostileQueueNames(c *C) {
	for _, name := range []string{
		"", ".", "..", "UPPER", "a b", "a/b", `a\b`, "a'b", `a"b`, "a;drop table", "ä", "a\x00", "a\n", "a%", "a*", "a{b}", "a:b", "$x",
		strings.Repeat("x", redrive.MaxQueueName+1),
	} {
		c.is(at(c.sink.Publish(c.ctx, []redrive.Message{{Queue: name}}), 0), fmt.Sprintf("queue %q", name), redrive.ErrInvalid)
	}
	fine := []string{"a", "0", "-", "_", "a.b-c_d", "...", "--", "select", "null", "_results", "dead", strings.Repeat("x", redrive.MaxQueueName)}
	for _, name := range fine {
		c.publish(redrive.Message{Queue: name, Body: []byte(name)})
	}
	for _, name := range fine {
		c.q = name
		d := c.one(c.ask(5))
		if string(d.Body) != name || d.Queue != name {
			c.Errorf("queue %q delivered a message of %q", name, d.Body)
		}
		c.done(d)
	}
}
