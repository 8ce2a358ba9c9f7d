// Package broken holds stores that are broken on purpose, one for each class of
// faults that was seen in the field. The conformance suite must fail every one of
// them: this is how the suite itself is tested.
package broken

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// Stores are the broken stores by name, as wrappers around a sound one.
var Stores = map[string]func(driver.Store) driver.Store{
	"no_fence":           func(s driver.Store) driver.Store { return &noFence{Store: s} },
	"lease_from_publish": func(s driver.Store) driver.Store { return &leaseFromPublish{Store: s} },
	"drop_on_full":       func(s driver.Store) driver.Store { return &dropOnFull{Store: s} },
	"batch_poisoned":     func(s driver.Store) driver.Store { return &batchPoisoned{Store: s} },
	"naive_move":         func(s driver.Store) driver.Store { return &naiveMove{Store: s} },
	"commit_highest":     func(s driver.Store) driver.Store { return &commitHighest{Store: s} },
	"lost_wake_up":       func(s driver.Store) driver.Store { return &lostWakeUp{Store: s} },
	"forgets_old_fences": func(s driver.Store) driver.Store {
		return &forgetsOldFences{Store: s, held: map[redrive.Ref][]redrive.Receipt{}}
	},
	"no_dead_fence": func(s driver.Store) driver.Store {
		return &noDeadFence{Store: s, held: map[redrive.Ref]redrive.Receipt{}}
	},
	"never_checks":          func(s driver.Store) driver.Store { return &neverChecks{Store: s} },
	"recomputes_at_redrive": func(s driver.Store) driver.Store { return &recomputesAtRedrive{Store: s} },
	"edits_blindly":         func(s driver.Store) driver.Store { return &editsBlindly{s} },
	"due_now_bears_no_plan": func(s driver.Store) driver.Store { return &dueNowBearsNoPlan{s} },
	"retries_anything":      func(s driver.Store) driver.Store { return &retriesAnything{s} },
	"edit_forgets":          func(s driver.Store) driver.Store { return &editForgets{Store: s, edited: map[redrive.Ref]bool{}} },
	"extends_too_long":      func(s driver.Store) driver.Store { return &extendsTooLong{Store: s} },
	"search_folds_case":     func(s driver.Store) driver.Store { return &searchFoldsCase{s} },
	"search_is_stale":       func(s driver.Store) driver.Store { return &searchIsStale{s, map[redrive.Ref]string{}} },
	"causes_end_early":      func(s driver.Store) driver.Store { return &causesEndEarly{s} },
	"retry_at_once":         func(s driver.Store) driver.Store { return &retryAtOnce{Store: s} },
}

// noFence settles and extends whatever the token.
type noFence struct{ driver.Store }

// current puts the present token into a receipt.
func (b *noFence) current(ctx context.Context, r *redrive.Receipt) {
	if e, err := b.Get(ctx, []redrive.Ref{r.Ref}); err == nil && e[0] != nil && e[0].Token != 0 {
		r.Token = e[0].Token
	}
}

func (b *noFence) Settle(ctx context.Context, s []driver.Settlement) []error {
	s = append([]driver.Settlement(nil), s...)
	for i := range s {
		b.current(ctx, &s[i].Receipt)
	}
	return b.Store.Settle(ctx, s)
}

func (b *noFence) Extend(ctx context.Context, r []redrive.Receipt, lease time.Duration) []error {
	r = append([]redrive.Receipt(nil), r...)
	for i := range r {
		b.current(ctx, &r[i])
	}
	return b.Store.Extend(ctx, r, lease)
}

// leaseFromPublish counts a lease from the publication of the message, so that in a
// backlog everything has timed out before it was begun.
type leaseFromPublish struct{ driver.Store }

func (b *leaseFromPublish) Claim(ctx context.Context, req driver.ClaimRequest) ([]redrive.Delivery, error) {
	got, err := b.Store.Claim(ctx, req)
	for i := range got {
		left := got[i].PublishedAt.Add(req.Lease).Sub(got[i].LeasedAt)
		b.Extend(ctx, []redrive.Receipt{got[i].Receipt}, max(left, 0))
	}
	return got, err
}

// full is what a dropOnFull holds.
const full = 100

// dropOnFull accepts what it has no room for, and forgets it.
type dropOnFull struct{ driver.Store }

func (b *dropOnFull) Publish(ctx context.Context, msgs []redrive.Message) []error {
	var kept []redrive.Message
	room := map[string]int64{}
	for i := range msgs {
		queue := msgs[i].Queue
		if _, known := room[queue]; !known {
			room[queue] = full
			if n, err := b.Counts(ctx, queue); err == nil {
				room[queue] -= n[0].AllWaiting()
			}
		}
		if room[queue]--; room[queue] >= 0 {
			kept = append(kept, msgs[i])
		} else if msgs[i].ID == "" {
			msgs[i].ID = redrive.NewID()
		}
	}
	if len(kept) == len(msgs) {
		return b.Store.Publish(ctx, msgs)
	}
	b.Store.Publish(ctx, kept)
	return nil
}

// batchPoisoned lets one bad item spoil its batch.
type batchPoisoned struct{ driver.Store }

func (b *batchPoisoned) Publish(ctx context.Context, msgs []redrive.Message) []error {
	for i := range msgs {
		if err := msgs[i].Validate(); err != nil {
			return all(len(msgs), err)
		}
	}
	return b.Store.Publish(ctx, msgs)
}

func (b *batchPoisoned) Settle(ctx context.Context, s []driver.Settlement) []error {
	for i := range s {
		e, err := b.Get(ctx, []redrive.Ref{s[i].Receipt.Ref})
		if err == nil && (e[0] == nil || e[0].State == redrive.StateLeased && e[0].Token != s[i].Receipt.Token) {
			return all(len(s), redrive.ErrLeaseLost)
		}
	}
	return b.Store.Settle(ctx, s)
}

func all(n int, err error) []error {
	errs := make([]error, n)
	for i := range errs {
		errs[i] = err
	}
	return errs
}

// naiveMove dead-letters in two steps, the copy first: who repeats it doubles it.
type naiveMove struct{ driver.Store }

func (b *naiveMove) Settle(ctx context.Context, s []driver.Settlement) []error {
	errs := make([]error, len(s))
	for i := range s {
		errs[i] = b.settle(ctx, s[i])
	}
	return errs
}

func (b *naiveMove) settle(ctx context.Context, s driver.Settlement) error {
	if s.Outcome != redrive.OutcomeDead {
		return driver.FirstError(b.Store.Settle(ctx, []driver.Settlement{s}))
	}
	e := redrive.Entry{Message: redrive.Message{Queue: s.Receipt.Queue}, State: redrive.StateDead, Reason: s.Reason}
	if there, err := b.Get(ctx, []redrive.Ref{s.Receipt.Ref}); err == nil && there[0] != nil {
		e = *there[0]
		e.ID, e.State, e.Reason = "", redrive.StateDead, s.Reason
	}
	if _, err := b.Apply(ctx, driver.Batch{Put: []redrive.Entry{e}}); err != nil {
		return err
	}
	s.Outcome = redrive.OutcomeDone
	return driver.FirstError(b.Store.Settle(ctx, []driver.Settlement{s}))
}

// commitHighest takes the end of a message for the end of all that were claimed
// before it.
type commitHighest struct {
	driver.Store
	mu  sync.Mutex
	out []redrive.Receipt
}

func (b *commitHighest) Claim(ctx context.Context, req driver.ClaimRequest) ([]redrive.Delivery, error) {
	got, err := b.Store.Claim(ctx, req)
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range got {
		b.out = append(b.out, got[i].Receipt)
	}
	return got, err
}

func (b *commitHighest) Settle(ctx context.Context, s []driver.Settlement) []error {
	b.mu.Lock()
	defer b.mu.Unlock()
	errs := b.Store.Settle(ctx, s)
	for i := range s {
		for at, r := range b.out {
			if r != s[i].Receipt || s[i].Outcome != redrive.OutcomeDone {
				continue
			}
			for _, before := range b.out[:at] {
				b.Store.Settle(ctx, []driver.Settlement{{Receipt: before, Outcome: redrive.OutcomeDone}})
			}
			b.out = b.out[at+1:]
			break
		}
	}
	return errs
}

// lostWakeUp tells a waiter only what was there before it began to wait.
type lostWakeUp struct{ driver.Store }

func (b *lostWakeUp) Wait(ctx context.Context, watches []driver.Watch) ([]driver.Event, error) {
	for i := range watches {
		if watches[i].Since == 0 {
			return b.Store.Wait(ctx, watches)
		}
	}
	<-ctx.Done()
	return nil, ctx.Err()
}

// retryAtOnce knows no delays.
type retryAtOnce struct{ driver.Store }

func (b *retryAtOnce) Settle(ctx context.Context, s []driver.Settlement) []error {
	s = append([]driver.Settlement(nil), s...)
	for i := range s {
		s[i].After = 0
	}
	return b.Store.Settle(ctx, s)
}

// neverChecks delivers what is there.
type neverChecks struct{ driver.Store }

func (b *neverChecks) Claim(ctx context.Context, req driver.ClaimRequest) ([]redrive.Delivery, error) {
	got, err := b.Store.Claim(ctx, req)
	for i := range got {
		got[i].Unfit = 0
	}
	return got, err
}

// recomputesAtRedrive stores a message anew with each redrive, and so a checksum of whatever is
// there by then.
type recomputesAtRedrive struct{ driver.Store }

func (b *recomputesAtRedrive) Update(ctx context.Context, sel driver.Selection, c driver.Change, limit int) ([]driver.Updated, error) {
	if c.Action == driver.ActRedrive && c.Edit == nil {
		entries, err := b.Get(ctx, sel.Refs)
		for i := range entries {
			if e := entries[i]; err == nil && e != nil && e.State == redrive.StateDead && e.Reason != redrive.ReasonCorrupt {
				same := driver.Change{Action: driver.ActEdit, Edit: &redrive.Edit{Body: e.Body}}
				if _, err := b.Store.Update(ctx, driver.Selection{Refs: sel.Refs[i : i+1]}, same, 1); err != nil {
					return nil, err
				}
			}
		}
	}
	return b.Store.Update(ctx, sel, c, limit)
}

// dueNowBearsNoPlan makes messages due, and forgets for which plan.
type dueNowBearsNoPlan struct{ driver.Store }

func (b *dueNowBearsNoPlan) Update(ctx context.Context, sel driver.Selection, c driver.Change, limit int) ([]driver.Updated, error) {
	if c.Action == driver.ActDueNow {
		c.Plan = ""
	}
	return b.Store.Update(ctx, sel, c, limit)
}

// retriesAnything takes all that waits for what waits for a retry.
type retriesAnything struct{ driver.Store }

func (b *retriesAnything) Find(ctx context.Context, q redrive.Query) (driver.Page, error) {
	if q.Retrying {
		q.Retrying, q.Signature = false, ""
	}
	return b.Store.Find(ctx, q)
}

// editsBlindly edits what is there, whatever it was when somebody looked at it.
type editsBlindly struct{ driver.Store }

func (b *editsBlindly) Update(ctx context.Context, sel driver.Selection, c driver.Change, limit int) ([]driver.Updated, error) {
	entries, err := b.Get(ctx, sel.Refs)
	for _, e := range entries {
		if e == nil || err != nil {
			continue
		}
		if edit, ok := c.Edits[e.Ref()]; ok {
			edit.Sum = driver.Checksum(&e.Message)
			c.Edits[e.Ref()] = edit
		}
	}
	return b.Store.Update(ctx, sel, c, limit)
}

// editForgets leaves the checksum of before beside what was edited.
type editForgets struct {
	driver.Store
	mu     sync.Mutex
	edited map[redrive.Ref]bool
}

func (b *editForgets) Update(ctx context.Context, sel driver.Selection, c driver.Change, limit int) ([]driver.Updated, error) {
	done, err := b.Store.Update(ctx, sel, c, limit)
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range done {
		if c.Edit != nil && done[i].Err == nil {
			b.edited[done[i].Ref] = true
		}
	}
	return done, err
}

func (b *editForgets) Claim(ctx context.Context, req driver.ClaimRequest) ([]redrive.Delivery, error) {
	got, err := b.Store.Claim(ctx, req)
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range got {
		if b.edited[got[i].Ref()] {
			got[i].Unfit = redrive.ReasonCorrupt
		}
	}
	return got, err
}

// forgetsOldFences refuses the holder before the present one, and knows none that were
// before that: they pass for the present one.
type forgetsOldFences struct {
	driver.Store
	mu   sync.Mutex
	held map[redrive.Ref][]redrive.Receipt
}

func (b *forgetsOldFences) Claim(ctx context.Context, req driver.ClaimRequest) ([]redrive.Delivery, error) {
	got, err := b.Store.Claim(ctx, req)
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range got {
		r := got[i].Receipt
		b.held[r.Ref] = append(b.held[r.Ref], r)
	}
	return got, err
}

func (b *forgetsOldFences) Settle(ctx context.Context, s []driver.Settlement) []error {
	s = append([]driver.Settlement(nil), s...)
	b.mu.Lock()
	for i := range s {
		held := b.held[s[i].Receipt.Ref]
		if at := slices.Index(held, s[i].Receipt); at >= 0 && at < len(held)-2 {
			s[i].Receipt = held[len(held)-1]
		}
	}
	b.mu.Unlock()
	return b.Store.Settle(ctx, s)
}

// noDeadFence takes whoever held a dead letter for its claimant.
type noDeadFence struct {
	driver.Store
	mu   sync.Mutex
	held map[redrive.Ref]redrive.Receipt
}

func (b *noDeadFence) Claim(ctx context.Context, req driver.ClaimRequest) ([]redrive.Delivery, error) {
	got, err := b.Store.Claim(ctx, req)
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range got {
		delete(b.held, got[i].Receipt.Ref)
		if req.Dead {
			b.held[got[i].Receipt.Ref] = got[i].Receipt
		}
	}
	return got, err
}

func (b *noDeadFence) Settle(ctx context.Context, s []driver.Settlement) []error {
	s = append([]driver.Settlement(nil), s...)
	b.mu.Lock()
	for i := range s {
		if r, dead := b.held[s[i].Receipt.Ref]; dead {
			s[i].Receipt = r
		}
	}
	b.mu.Unlock()
	return b.Store.Settle(ctx, s)
}

// extendsTooLong has leases that are extended end late.
type extendsTooLong struct{ driver.Store }

func (b *extendsTooLong) Extend(ctx context.Context, r []redrive.Receipt, lease time.Duration) []error {
	return b.Store.Extend(ctx, r, 3*lease)
}

// searchFoldsCase finds dead letters by text whether letters are small or capital.
type searchFoldsCase struct{ driver.Store }

func (b *searchFoldsCase) Find(ctx context.Context, q redrive.Query) (driver.Page, error) {
	text := q.Text
	if text == "" {
		return b.Store.Find(ctx, q)
	}
	q.Text, q.Bodies, q.Limit = "", true, redrive.MaxPage
	page, err := b.Store.Find(ctx, q)
	page.Entries = slices.DeleteFunc(page.Entries, func(e redrive.Entry) bool {
		f := e.History.Latest()
		return f == nil || !strings.Contains(strings.ToLower(f.Message+f.Details[driver.DetailAnswer]), strings.ToLower(text))
	})
	return page, err
}

// searchIsStale has an index of texts that knows what a dead letter said first, and not what the
// failures of those who worked on it say.
type searchIsStale struct {
	driver.Store
	said map[redrive.Ref]string
}

func (b *searchIsStale) Find(ctx context.Context, q redrive.Query) (driver.Page, error) {
	text := q.Text
	if text == "" {
		page, err := b.Store.Find(ctx, q)
		for _, e := range page.Entries {
			if f := e.History.Latest(); f != nil && b.said[e.Ref()] == "" {
				b.said[e.Ref()] = f.Message + " " + f.Details[driver.DetailAnswer]
			}
		}
		return page, err
	}
	q.Text = ""
	page, err := b.Store.Find(ctx, q)
	page.Entries = slices.DeleteFunc(page.Entries, func(e redrive.Entry) bool { return !strings.Contains(b.said[e.Ref()], text) })
	return page, err
}

// causesEndEarly loses the last cause of each page.
type causesEndEarly struct{ driver.Store }

func (b *causesEndEarly) Causes(ctx context.Context, q redrive.Query) ([]driver.Cause, bool, error) {
	list, all, err := b.Store.Causes(ctx, q)
	if q.After != "" && !all {
		b.skip(list)
	}
	return list, all, err
}

// skip puts the end of a page in place of what stands before it.
func (*causesEndEarly) skip(list []driver.Cause) {
	if n := len(list); n > 1 {
		list[n-2] = list[n-1]
	}
}
