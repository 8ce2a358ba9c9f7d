package backendtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// Waiting.

var waitCases = []testCase{
	{name: "WaitTellsOfManyQueues", run: waitManyQueues},
	{name: "WaitTellsWhatChanged", run: waitTellsWhat},
	{name: "WaitSaysWhenNextIsDue", run: waitNextDue, needs: []need{delays}},
}

// event waits until a queue's event is as wanted.
func (c *C) event(what string, since uint64, so func(driver.Event) bool) driver.Event {
	c.Helper()
	ctx, cancel := context.WithTimeout(c.ctx, c.f.Patience)
	defer cancel()
	var last driver.Event
	for {
		events, err := c.src.Wait(ctx, []driver.Watch{{Queue: c.q, Since: since}})
		if err != nil {
			c.Fatalf("no event of %s, the last one was %+v: %v", what, last, err)
		}
		if last = events[0]; so(last) {
			return last
		}
		since = events[0].Version
	}
}

func waitManyQueues(c *C) {
	const n = 200
	watches := make([]driver.Watch, n)
	for i := range watches {
		watches[i].Queue = fmt.Sprintf("queue-%03d", i)
	}
	events, err := c.src.Wait(c.ctx, watches)
	c.noError(err, "wait")
	if len(events) != n {
		c.Fatalf("%d events for %d new watches", len(events), n)
	}
	learn := func(events []driver.Event) {
		for _, e := range events {
			var i int
			if _, err := fmt.Sscanf(e.Queue, "queue-%03d", &i); err != nil || i >= n {
				c.Fatalf("an event of %q, which nobody watches", e.Queue)
			}
			watches[i].Since = e.Version
		}
	}
	learn(events)
	ctx, cancel := context.WithTimeout(c.ctx, c.f.Patience)
	defer cancel()
	for _, i := range []int{7, 199, 0} {
		c.publish(redrive.Message{Queue: watches[i].Queue})
		for found := false; !found; {
			events, err := c.src.Wait(ctx, watches)
			c.noError(err, "no event of %s", watches[i].Queue)
			learn(events)
			for _, e := range events {
				found = found || e.Queue == watches[i].Queue && e.NextDueIn == 0
			}
		}
	}
}

func waitTellsWhat(c *C) {
	v := c.event("an empty queue", 0, func(driver.Event) bool { return true }).Version
	due := func(l redrive.Lane) func(driver.Event) bool {
		return func(e driver.Event) bool { return e.NextDueIn == 0 && e.Lanes.Has(l) }
	}
	c.publish(redrive.Message{ID: "m"})
	v = c.event("a publish", v, due(redrive.LaneFresh)).Version
	d := c.one(c.ask(1))
	c.noError(c.settle(retry(d, 0)), "retry")
	v = c.event("a retry", v, due(redrive.LaneRetry)).Version
	d = c.one(c.lane(1, redrive.LaneRetry))
	c.noError(c.settle(deadly(d, redrive.ReasonPermanent)), "dead")
	c.redrive("m")
	v = c.event("a redrive", v, due(redrive.LaneRedrive)).Version
	d = c.one(c.lane(1, redrive.LaneRedrive))
	c.noError(c.settle(release(d, long)), "release")
	v = c.event("a release for later", v, func(e driver.Event) bool { return true }).Version
	c.update(driver.Change{Action: driver.ActDueNow}, "m")
	v = c.event("what was made due", v, due(redrive.LaneRedrive)).Version
	r := c.short(1)
	r.Lane = redrive.LaneRedrive
	c.one(r)
	c.runOut()
	c.event("a suspect", 0, func(e driver.Event) bool { return e.Suspects })
	_, err := c.store.Apply(c.ctx, driver.Batch{Put: []redrive.Entry{{Message: redrive.Message{Queue: c.q, ID: "put"}, State: redrive.StateWaiting, Lane: redrive.LaneRetry}}})
	c.noError(err, "apply")
	c.event("an entry that was put", v, due(redrive.LaneRetry))
}

func waitNextDue(c *C) {
	within := func(want time.Duration) func(driver.Event) bool {
		return func(e driver.Event) bool {
			return e.NextDueIn == 0 && e.Lanes == driver.AllLanes || e.NextDueIn <= want && e.NextDueIn > want-2*c.tick
		}
	}
	c.publish(redrive.Message{ID: "late", Delay: 40 * c.tick})
	v := c.event("a delayed message", 0, within(40*c.tick)).Version
	c.publish(redrive.Message{ID: "earlier", Delay: 20 * c.tick})
	v = c.event("an earlier one", v, within(20*c.tick)).Version
	c.publish(redrive.Message{ID: "now"})
	d := c.one(c.ask(1))
	c.noError(c.settle(retry(d, 10*c.tick)), "retry")
	c.event("a retry before them", v, within(10*c.tick))
	c.publish(redrive.Message{ID: "leased"})
	r := c.ask(1)
	r.Lease = 5 * c.tick
	d = c.one(r)
	e := c.event("a claim", 0, func(driver.Event) bool { return true })
	if within(5 * c.tick)(e) {
		c.done(d)
		return
	}
	// It did not say when the lease ends; then it must wake the waiter at its end.
	events := make(chan driver.Event)
	go func() {
		defer close(events)
		events <- c.event("the end of a lease", e.Version, func(e driver.Event) bool { return e.Suspects })
	}()
	c.pass(6 * c.tick)
	<-events
	c.done(c.one(isolated(c.ask(1))))
}

// consume claims and settles by nothing but what Wait says, until ctx ends, and tells of
// each message it saw.
func (c *C) consume(ctx context.Context, seen chan<- string) {
	since := uint64(0)
	for {
		events, err := c.src.Wait(ctx, []driver.Watch{{Queue: c.q, Since: since}})
		if err != nil {
			return
		}
		since = events[0].Version
		for {
			got, err := c.src.Claim(ctx, c.ask(7))
			if err != nil || len(got) == 0 {
				break
			}
			list := make([]driver.Settlement, len(got))
			for i := range got {
				list[i] = settled(got[i], redrive.OutcomeDone)
			}
			if err := driver.FirstError(c.src.Settle(c.ctx, list)); err != nil {
				c.Errorf("settle: %v", err)
			}
			for i := range got {
				seen <- got[i].ID
			}
		}
	}
}

// wakeUpLost publishes one by one to a consumer that has to be woken for each, and
// then many while it is busy.
func wakeUpLost(c *C) {
	const n = 300
	ctx, cancel := context.WithTimeout(c.ctx, c.f.Patience)
	defer cancel()
	seen := make(chan string, n)
	var wg sync.WaitGroup
	wg.Go(func() { c.consume(ctx, seen) })
	await := func(what string) bool {
		select {
		case <-seen:
			return true
		case <-ctx.Done():
			c.Errorf("the one who waits never saw %s", what)
			return false
		}
	}
	ok := true
	for i := 0; ok && i < n/10; i++ {
		id := fmt.Sprintf("single-%04d", i)
		c.publish(redrive.Message{ID: id})
		ok = await(id)
	}
	for i := 0; ok && i < n; i++ {
		c.publish(redrive.Message{ID: fmt.Sprintf("m%04d", i)})
	}
	for i := 0; ok && i < n; i++ {
		ok = await(fmt.Sprintf("%d of %d messages", n-i, n))
	}
	cancel()
	wg.Wait()
}

func killedDuringWait(c *C) {
	const n = 200
	var wg sync.WaitGroup
	stop := make(chan struct{})
	wg.Go(func() {
		for {
			ctx, cancel := context.WithTimeout(c.ctx, time.Millisecond)
			_, err := c.src.Wait(ctx, []driver.Watch{{Queue: c.q, Since: 1 << 40}})
			cancel()
			if err != nil && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) {
				c.Errorf("wait: %v", err)
			}
			select {
			case <-stop:
				return
			default:
			}
		}
	})
	msgs := make([]redrive.Message, n)
	for i := range msgs {
		msgs[i] = c.publish(redrive.Message{ID: fmt.Sprintf("m%04d", i)})[0]
	}
	close(stop)
	wg.Wait()
	got := c.get(n, c.ask(n))
	c.sameSet("what is left after waiters died", ids(got), idsOf(msgs))
	if i := slices.IndexFunc(got, func(d redrive.Delivery) bool { return d.Attempt != 1 }); i >= 0 {
		c.Errorf("%s is at attempt %d though nobody claimed it", got[i].ID, got[i].Attempt)
	}
	c.done(got...)
}
