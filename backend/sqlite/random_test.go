package sqlite

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// TestRandomOperations does anything in any order, with deaths of the process in
// between, and compares ledger and rows again and again.
func TestRandomOperations(t *testing.T) {
	for seed := range uint64(randomSeeds) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			r := &random{T: t, rand: rand.New(rand.NewPCG(seed, 1)), clock: newClock(), dir: t.TempDir()}
			r.s = open(t, r.dir, WithClock(r.clock.now))
			noErr(t, r.s.Configure(t.Context(), "ordered", driver.QueueSettings{OrderByKey: true}),
				r.s.Configure(t.Context(), "lenient", driver.QueueSettings{OrderByKey: true, DeadRelease: true, Remember: time.Hour}))
			for range 60 {
				for range 10 {
					r.step()
				}
				verify(t, r.s)
				r.heads()
				r.causes()
			}
			r.drain()
		})
	}
}

type random struct {
	*testing.T
	rand  *rand.Rand
	clock *clock
	dir   string
	s     *Store
	held  []redrive.Delivery
}

func (r *random) pick(from ...string) string { return from[r.rand.IntN(len(from))] }

func (r *random) queue() string { return r.pick("plain", "ordered", "lenient") }

func (r *random) message() redrive.Message {
	m := redrive.Message{Queue: r.queue(), Kind: r.pick("", "a", "b"), Key: r.pick("", "x", "y"), Body: []byte(r.pick("", "1", "22"))}
	if r.rand.IntN(3) == 0 {
		m.ID = fmt.Sprintf("id-%d", r.rand.IntN(200))
	}
	if r.rand.IntN(4) == 0 {
		m.Delay = time.Duration(r.rand.IntN(100)) * time.Second
	}
	if r.rand.IntN(8) == 0 {
		m.ExpiresAt = r.clock.now().Add(time.Duration(r.rand.IntN(100)) * time.Second)
	}
	if r.rand.IntN(8) == 0 {
		m.ReplyTo = "results"
	}
	return m
}

func (r *random) step() {
	r.Helper()
	ctx := r.Context()
	switch r.rand.IntN(12) {
	case 0, 1, 2:
		msgs := make([]redrive.Message, 1+r.rand.IntN(5))
		for i := range msgs {
			msgs[i] = r.message()
		}
		r.allowed(r.s.Publish(ctx, msgs), redrive.ErrDuplicate, redrive.ErrConflict)
	case 3, 4:
		req := driver.ClaimRequest{Queue: r.queue(), Lane: redrive.Lane(r.rand.IntN(driver.Lanes)), Max: 1 + r.rand.IntN(5),
			Lease: time.Duration(1+r.rand.IntN(100)) * time.Second}
		switch r.rand.IntN(6) {
		case 0:
			req.Isolated = true
		case 1:
			req.Dead = true
		case 2:
			req.Expired, req.MaxAge = true, time.Minute
		case 3:
			req.ExceptKinds = []string{"a"}
		}
		ds, err := r.s.Claim(ctx, req)
		noErr(r, err)
		r.held = append(r.held, ds...)
	case 5, 6, 7:
		r.settle()
	case 8:
		r.update()
	case 9:
		r.clock.advance(time.Duration(r.rand.IntN(40)) * time.Second)
	case 10:
		r.apply()
	case 11:
		if r.rand.IntN(4) != 0 {
			return
		}
		if r.rand.IntN(2) == 0 {
			noErr(r, r.s.Close())
		} else {
			r.s.abandon()
		}
		r.s = open(r, r.dir, WithClock(r.clock.now))
	}
}

func (r *random) settle() {
	var list []driver.Settlement
	for len(r.held) > 0 && len(list) < 4 {
		i := r.rand.IntN(len(r.held))
		d := r.held[i]
		if r.rand.IntN(5) != 0 { // else it is settled once more later
			r.held = append(r.held[:i], r.held[i+1:]...)
		}
		st := driver.Settlement{Receipt: d.Receipt, Outcome: redrive.Outcome(1 + r.rand.IntN(6)), Reason: redrive.ReasonPermanent}
		if r.rand.IntN(2) == 0 {
			st.Failure = &redrive.Failure{Message: "m", Signature: r.pick("s1", "s2")}
		}
		if r.rand.IntN(3) == 0 {
			st.After = time.Duration(r.rand.IntN(60)) * time.Second
		}
		if r.rand.IntN(4) == 0 {
			st.Emit = []redrive.Message{r.message(), r.message()}
		}
		list = append(list, st)
	}
	r.allowed(r.s.Settle(r.Context(), list), redrive.ErrLeaseLost, redrive.ErrNotFound, redrive.ErrConflict)
}

func (r *random) update() {
	c := driver.Change{Action: driver.Action(1 + r.rand.IntN(6)), Note: r.pick("", "n"), NewID: r.rand.IntN(3) == 0}
	if r.rand.IntN(3) == 0 {
		c.To = r.queue()
	}
	if c.Action == driver.ActEdit || r.rand.IntN(4) == 0 {
		key := r.pick("", "x", "z")
		c.Edit = &redrive.Edit{Body: []byte("edited"), Key: &key}
	}
	updated, err := r.s.Update(r.Context(), driver.Selection{Query: &redrive.Query{Queue: r.queue(), State: redrive.State(r.rand.IntN(5))}}, c, 3)
	noErr(r, err)
	for _, u := range updated {
		r.allowed([]error{u.Err}, redrive.ErrState, redrive.ErrDuplicate, redrive.ErrConflict)
	}
}

func (r *random) apply() {
	e := redrive.Entry{Message: r.message(), State: redrive.StateWaiting, Lane: redrive.LaneRetry, Attempts: 2, Suspect: r.rand.IntN(4) == 0}
	if r.rand.IntN(2) == 0 {
		e.State, e.Reason, e.History.Count, e.History.First = redrive.StateDead, redrive.ReasonExhausted, 1, &redrive.Failure{Message: "m"}
	}
	b := driver.Batch{Put: []redrive.Entry{e}, Publish: []redrive.Message{r.message()}, Entered: driver.Entered(r.rand.IntN(3))}
	if page, err := r.s.Find(r.Context(), redrive.Query{Queue: "plain", Key: "x", Limit: 3}); err == nil && len(page.Entries) == 3 {
		b.Delete = []driver.Range{{Queue: "plain", Key: "x", UpTo: page.Entries[2].ID}}
	}
	errs, err := r.s.Apply(r.Context(), b)
	noErr(r, err)
	r.allowed(errs, redrive.ErrDuplicate, redrive.ErrConflict)
}

func (r *random) allowed(errs []error, allowed ...error) {
	r.Helper()
	for _, err := range errs {
		ok := err == nil
		for _, a := range allowed {
			ok = ok || errors.Is(err, a)
		}
		if !ok {
			r.Fatal(err)
		}
	}
}

// heads checks that of each key in an ordered queue at most one message can be
// claimed or is in flight.
func (r *random) heads() {
	r.Helper()
	st := r.s.w
	var bad int64
	noErr(r, r.s.between(r.Context(), func() (err error) {
		bad, err = st.value(`SELECT count(*) FROM (SELECT 1 FROM waiting w JOIN message m ON m.seq = w.seq
			WHERE w.turn <> 0 AND w.class <> 4 GROUP BY w.queue, m.key HAVING count(*) > 1)`)
		return err
	}))
	if bad != 0 {
		r.Fatalf("%d keys have more than one message that may be claimed", bad)
	}
}

// causes checks counters of causes against the dead letters.
func (r *random) causes() {
	r.Helper()
	page, err := r.s.Find(r.Context(), redrive.Query{State: redrive.StateDead, Bodies: true, Limit: redrive.MaxPage})
	noErr(r, err)
	var grouped driver.Grouping
	counted, died := int64(0), time.Time{}
	if n := len(page.Entries); n > 0 {
		died = page.Entries[r.rand.IntN(n)].DiedAt
	}
	for i := range page.Entries {
		e := &page.Entries[i]
		grouped.Add(e)
		if e.Queue == "plain" && !died.IsZero() && !e.DiedAt.After(died) {
			counted++
		}
	}
	want, _ := grouped.Causes(redrive.MaxPage)
	got, _, err := r.s.Causes(r.Context(), redrive.Query{Limit: redrive.MaxPage})
	noErr(r, err)
	equal(r, len(got), len(want))
	for i := range got {
		got[i].Example, want[i].Example = redrive.Ref{}, redrive.Ref{} // of the same moment, any
		got[i].Type, got[i].Message, want[i].Type, want[i].Message = "", "", "", ""
		equal(r, got[i], want[i])
	}
	if !died.IsZero() {
		n, err := r.s.Count(r.Context(), redrive.Query{Queue: "plain", State: redrive.StateDead, Until: died})
		noErr(r, err)
		equal(r, n.N, counted)
	}
}

// drain ends everything, and the ledger must balance.
func (r *random) drain() {
	r.Helper()
	r.clock.advance(time.Hour)
	for range 1000 {
		again := false
		for _, q := range []string{"plain", "ordered", "lenient", "results"} {
			reqs := []driver.ClaimRequest{{Isolated: true}, {Dead: true}, {}, {Lane: redrive.LaneRetry}, {Lane: redrive.LaneRedrive}}
			for _, req := range reqs {
				req.Queue = q
				for _, d := range claimWith(r, r.s, req) {
					settle(r, r.s, d, redrive.OutcomeDone)
					again = true
				}
			}
		}
		if !again {
			break
		}
	}
	counts, err := r.s.Counts(r.Context())
	noErr(r, err)
	for i := range counts {
		c := &counts[i]
		if c.AllWaiting()+c.AllDead()+c.Bytes+c.Leased != 0 {
			r.Fatalf("left over: %+v", c)
		}
	}
	verify(r, r.s)
	r.clock.advance(40 * 24 * time.Hour)
	_, err = r.s.Trim(r.Context(), driver.Retention{}, 100_000)
	noErr(r, err)
	for _, table := range []string{"message", "waiting", "dead", "failure", "original", "keyed", "chosen", "claim", "cause", "bucket"} {
		var n int64
		noErr(r, r.s.between(r.Context(), func() (err error) {
			n, err = r.s.w.value("SELECT count(*) FROM " + table)
			return err
		}))
		if n != 0 {
			r.Errorf("%d rows left in %s", n, table)
		}
	}
}
