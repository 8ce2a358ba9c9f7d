package backendtest

import (
	"errors"
	"slices"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// What is in the store.

func (c *C) counts() *driver.Counts {
	c.Helper()
	return c.countsOf(c.q)
}

func (c *C) countsOf(queue string) *driver.Counts {
	c.Helper()
	counts, err := c.store.Counts(c.ctx, queue)
	c.noError(err, "counts")
	if len(counts) != 1 || counts[0].Queue != queue {
		c.Fatalf("counts of %s: got %+v", queue, counts)
	}
	return &counts[0]
}

// holds checks how many messages wait and are dead, where one can look.
func (c *C) holds(waiting, dead int64) {
	c.Helper()
	if c.store == nil {
		return
	}
	n := c.counts()
	if n.AllWaiting() != waiting || n.AllDead() != dead {
		c.Errorf("%d waiting and %d dead, want %d and %d", n.AllWaiting(), n.AllDead(), waiting, dead)
	}
}

func (c *C) lookUp(queue, id string) *redrive.Entry {
	c.Helper()
	entries, err := c.store.Get(c.ctx, []redrive.Ref{{Queue: queue, ID: id}})
	c.noError(err, "get %s", id)
	return entries[0]
}

// entry returns an entry that must be there.
func (c *C) entry(id string) *redrive.Entry {
	c.Helper()
	e := c.lookUp(c.q, id)
	if e == nil {
		c.Fatalf("%s is not there", id)
	}
	return e
}

// inState checks where a message stands, where one can look; 0: nowhere.
func (c *C) inState(id string, want redrive.State) {
	c.Helper()
	if c.store == nil {
		return
	}
	var got redrive.State
	if e := c.lookUp(c.q, id); e != nil {
		got = e.State
	}
	if got != want {
		c.Errorf("%s is %s, want %s", id, got, want)
	}
}

// find returns all entries of a query, page by page.
func (c *C) find(q redrive.Query) []redrive.Entry {
	c.Helper()
	var all []redrive.Entry
	for range 10_000 {
		page, err := c.store.Find(c.ctx, q)
		c.noError(err, "find")
		all = append(all, page.Entries...)
		if page.Next == "" {
			return all
		}
		q.After = page.Next
	}
	c.Fatalf("find does not come to an end")
	return nil
}

func entryIDs(entries []redrive.Entry) []string {
	names := make([]string, len(entries))
	for i := range entries {
		names[i] = entries[i].ID
	}
	return names
}

// update changes named messages of the case's queue.
func (c *C) update(ch driver.Change, names ...string) []driver.Updated {
	c.Helper()
	refs := make([]redrive.Ref, len(names))
	for i, id := range names {
		refs[i] = redrive.Ref{Queue: c.q, ID: id}
	}
	got, err := c.store.Update(c.ctx, driver.Selection{Refs: refs}, ch, len(refs))
	c.noError(err, "%s", ch.Action)
	if len(got) != len(refs) {
		c.Fatalf("%s: %d results for %d messages", ch.Action, len(got), len(refs))
	}
	for i := range got {
		if got[i].Ref != refs[i] {
			c.Errorf("%s: result %d is of %s, want %s", ch.Action, i, got[i].Ref, refs[i])
		}
	}
	return got
}

// redrive redrives one dead letter.
func (c *C) redrive(id string) {
	c.Helper()
	c.noError(c.update(driver.Change{Action: driver.ActRedrive}, id)[0].Err, "redrive %s", id)
}

func (c *C) configure(s driver.QueueSettings) {
	c.Helper()
	c.noError(c.store.Configure(c.ctx, c.q, s), "configure")
}

// balanced checks that the ledger of every queue fits what is there.
func (c *C) balanced() {
	c.Helper()
	audits, err := c.store.Verify(c.ctx)
	if errors.Is(err, redrive.ErrClosed) {
		return
	}
	c.noError(err, "verify")
	for i := range audits {
		a := &audits[i]
		if n := a.Imbalance(); n != 0 || len(a.Problems) > 0 {
			c.Errorf("the ledger of %s is off by %d: %+v", a.Queue, n, *a)
		}
	}
}

// equal checks two lists of names.
func (c *C) equal(what string, got, want []string) {
	c.Helper()
	if !slices.Equal(got, want) {
		c.Errorf("%s: got %v, want %v", what, got, want)
	}
}

// inOrder is equal, but that a queue with partitions need not keep the order.
func (c *C) inOrder(what string, got, want []string) {
	c.Helper()
	if c.f.Partitions {
		c.sameSet(what, got, want)
		return
	}
	c.equal(what, got, want)
}

// sameSet is equal whatever the order.
func (c *C) sameSet(what string, got, want []string) {
	c.Helper()
	c.equal(what, slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(want)))
}

func idsOf(msgs []redrive.Message) []string {
	names := make([]string, len(msgs))
	for i := range msgs {
		names[i] = msgs[i].ID
	}
	return names
}
