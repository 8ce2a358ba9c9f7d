package backendtest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// long is a lease that does not run out during a case.
const long = 10 * time.Minute

// instance is who claims, where it does not matter.
const instance = "instance-1"

// Instances are the names under which the cases with a crash claim, for a Factory
// whose Crash must know who died.
var Instances = []string{instance, "dies"}

// pass lets time pass by the store's clock.
func (c *C) pass(d time.Duration) {
	c.Helper()
	if c.f.Advance != nil {
		c.f.Advance(d)
		return
	}
	if c.store == nil {
		timer := time.NewTimer(d)
		<-timer.C
		return
	}
	until := c.now().Add(d)
	c.eventually("the store's clock to go on", func() bool { return !c.now().Before(until) })
}

// runOut lets leases of c.lease run out.
func (c *C) runOut() {
	c.Helper()
	c.pass(c.lease + c.lease/4)
}

// eventually asks until it is so, or the patience ends.
func (c *C) eventually(what string, so func() bool) {
	c.Helper()
	deadline := time.Now().Add(c.f.Patience)
	poll := time.NewTicker(2 * time.Millisecond)
	defer poll.Stop()
	for !so() {
		if time.Now().After(deadline) {
			c.Fatalf("waited in vain for %s", what)
		}
		<-poll.C
	}
}

func (c *C) now() time.Time {
	c.Helper()
	now, err := c.store.Now(c.ctx)
	c.noError(err, "Now")
	return now
}

func (c *C) noError(err error, what string, args ...any) {
	c.Helper()
	if err != nil {
		c.Fatalf("%s: %v", fmt.Sprintf(what, args...), err)
	}
}

// is checks that err is one of those wanted; nil stands for success.
func (c *C) is(err error, what string, want ...error) {
	c.Helper()
	if !slices.ContainsFunc(want, func(w error) bool { return err == nil && w == nil || w != nil && errors.Is(err, w) }) {
		c.Errorf("%s: got %v, want %v", what, err, want)
	}
}

// at returns the i-th of results that are nil if all succeeded.
func at(errs []error, i int) error {
	if errs == nil {
		return nil
	}
	return errs[i]
}

// publish publishes to the case's queue, unless messages name another, and fails the
// case if one is refused.
func (c *C) publish(msgs ...redrive.Message) []redrive.Message {
	c.Helper()
	for i := range msgs {
		if msgs[i].Queue == "" {
			msgs[i].Queue = c.q
		}
	}
	for i, err := range c.sink.Publish(c.ctx, msgs) {
		c.noError(err, "publish %s", msgs[i].Ref())
	}
	return msgs
}

// publishN publishes n messages with the ids m0001 and so on; the bodies are the ids.
func (c *C) publishN(n int) []redrive.Message {
	c.Helper()
	msgs := make([]redrive.Message, n)
	for i := range msgs {
		msgs[i].ID = fmt.Sprintf("m%04d", i+1)
		msgs[i].Body = []byte(msgs[i].ID)
	}
	for chunk := range slices.Chunk(msgs, 500) {
		c.publish(chunk...)
	}
	return msgs
}

// ask is a claim of n messages in the fresh lane under a long lease.
func (c *C) ask(n int) driver.ClaimRequest {
	return driver.ClaimRequest{Queue: c.q, Max: n, Lease: long, Instance: instance}
}

// short is ask under a lease that c.runOut ends.
func (c *C) short(n int) driver.ClaimRequest {
	r := c.ask(n)
	r.Lease = c.lease
	return r
}

func (c *C) lane(n int, l redrive.Lane) driver.ClaimRequest {
	r := c.ask(n)
	r.Lane = l
	return r
}

func isolated(r driver.ClaimRequest) driver.ClaimRequest { r.Isolated = true; return r }
func dead(r driver.ClaimRequest) driver.ClaimRequest     { r.Dead = true; return r }

// claim claims what there is.
func (c *C) claim(r driver.ClaimRequest) []redrive.Delivery {
	c.Helper()
	got, err := c.src.Claim(c.ctx, r)
	c.noError(err, "claim")
	if len(got) > r.Max {
		c.Fatalf("claimed %d, asked for %d", len(got), r.Max)
	}
	return got
}

// get claims exactly n messages, for which a broker may need some time.
func (c *C) get(n int, r driver.ClaimRequest) []redrive.Delivery {
	c.Helper()
	var got []redrive.Delivery
	take := func() bool {
		r.Max = n - len(got)
		got = append(got, c.claim(r)...)
		return len(got) == n
	}
	if c.store == nil {
		c.eventually(fmt.Sprintf("%d messages", n), take)
	} else if !take() {
		c.Fatalf("claimed %d messages (%v), want %d", len(got), ids(got), n)
	}
	return got
}

func (c *C) one(r driver.ClaimRequest) redrive.Delivery {
	c.Helper()
	return c.get(1, r)[0]
}

// none checks that there is nothing to claim.
func (c *C) none(r driver.ClaimRequest) {
	c.Helper()
	if got := c.claim(r); len(got) != 0 {
		c.Errorf("claimed %v, want nothing", ids(got))
	}
}

// drain claims and settles as done until nothing is due in any lane, and returns the
// ids in the order of the claims.
func (c *C) drain() []string {
	c.Helper()
	var seen []string
	for {
		var got []redrive.Delivery
		for l := range redrive.Lane(driver.Lanes) {
			got = append(got, c.claim(c.lane(500, l))...)
		}
		if c.store != nil {
			got = append(got, c.claim(isolated(c.ask(1)))...)
		}
		if len(got) == 0 {
			return seen
		}
		seen = append(seen, ids(got)...)
		c.done(got...)
	}
}

// rest drains what is left, which must be n messages.
func (c *C) rest(n int) []string {
	c.Helper()
	if c.store != nil {
		seen := c.drain()
		if len(seen) != n {
			c.Errorf("%d messages are left, want %d: %v", len(seen), n, seen)
		}
		return seen
	}
	var got []redrive.Delivery
	c.eventually(fmt.Sprintf("%d messages", n), func() bool {
		r := c.ask(max(n-len(got), 1))
		got = append(got, c.claim(r)...)
		if c.caps.RecordsClaims && len(got) < n {
			got = append(got, c.claim(isolated(r))...)
		}
		return len(got) >= n
	})
	c.done(got...)
	c.none(c.ask(n))
	return ids(got)
}

func ids(ds []redrive.Delivery) []string {
	names := make([]string, len(ds))
	for i := range ds {
		names[i] = ds[i].ID
	}
	return names
}

// Settlements.

func settled(d redrive.Delivery, o redrive.Outcome) driver.Settlement {
	return driver.Settlement{Receipt: d.Receipt, Outcome: o}
}

func retry(d redrive.Delivery, after time.Duration) driver.Settlement {
	s := settled(d, redrive.OutcomeRetry)
	s.After, s.Failure = after, failure(d.Attempt, "retry me")
	return s
}

func release(d redrive.Delivery, after time.Duration) driver.Settlement {
	s := settled(d, redrive.OutcomeRelease)
	s.After = after
	return s
}

func deadly(d redrive.Delivery, reason redrive.Reason) driver.Settlement {
	s := settled(d, redrive.OutcomeDead)
	s.Reason, s.Failure = reason, failure(d.Attempt, "cannot be done")
	return s
}

func failure(attempt int, text string) *redrive.Failure {
	return &redrive.Failure{
		At: time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC), Duration: time.Millisecond, Attempt: attempt,
		Types: []string{"*test.Error"}, Message: text, Stack: "main.handle", Host: "host", IP: "192.0.2.1", PID: 7,
		Service: "test", Version: "v1", Env: "test", TraceID: "0af7651916cd43dd8448eb211c80319c",
		Config:    redrive.FailureConfig{Target: "provider", Timeout: time.Second, Policy: "default", MaxAttempts: 5},
		Details:   map[string]string{"status": "503"},
		Signature: "sig-" + strings.ReplaceAll(text, " ", "-"),
	}
}

// settle carries settlements out and returns the first error.
func (c *C) settle(s ...driver.Settlement) error {
	c.Helper()
	return driver.FirstError(c.src.Settle(c.ctx, s))
}

// done settles deliveries as done.
func (c *C) done(ds ...redrive.Delivery) {
	c.Helper()
	list := make([]driver.Settlement, len(ds))
	for i := range ds {
		list[i] = settled(ds[i], redrive.OutcomeDone)
	}
	c.noError(c.settle(list...), "settle done")
}

// kill makes dead letters of what is waiting in the fresh lane.
func (c *C) kill(n int, reason redrive.Reason) {
	c.Helper()
	for n > 0 {
		got := c.claim(c.ask(min(n, 500)))
		if len(got) == 0 {
			c.Fatalf("%d more messages should have been there to be made dead", n)
		}
		list := make([]driver.Settlement, len(got))
		for i := range got {
			list[i] = deadly(got[i], reason)
		}
		c.noError(c.settle(list...), "settle dead")
		n -= len(got)
	}
}

func isUnknown(err error) bool { return errors.Is(err, redrive.ErrUnknown) }
