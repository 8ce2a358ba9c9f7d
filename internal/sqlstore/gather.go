package sqlstore

import (
	"context"
	"sync"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// Bounds of what calls share.
const (
	gatherItems = 1000
	gatherers   = 2 // in flight: one is planned or written while the other is synced
)

// Gatherer stores together what the Publish calls bring that wait at the same time.
// There is no timer: the next group holds whatever came in while the last ones were
// stored. Its fields are set before it is used.
type Gatherer struct {
	// Store stores items, and gives those that are refused their results; with an error
	// it has stored those that are done.
	Store func(ctx context.Context, items []*Item, single bool) error
	// Single reports a call that goes by itself; nil: none does.
	Single func(items []*Item) bool
	// AtFault reports an error that the values of one message caused.
	AtFault func(err error) bool
	// Fault makes of an error what a caller gets.
	Fault func(op string, err error) error
	// Changed receives the queues that got something.
	Changed func(queues ...string)
	// Masks are what hashes of messages leave out.
	Masks *driver.Masks
	// Timeout bounds the storing of a group, Bytes its size.
	Timeout time.Duration
	Bytes   int

	mu      sync.Mutex
	waiting []*call
	active  int
	closed  bool
	done    sync.WaitGroup
}

// call is one Publish.
type call struct {
	items  []*Item
	size   int
	taken  bool // guarded by Gatherer.mu
	ended  chan struct{}
	single bool
}

// Publish carries out the Publish of a [redrive.Sink]. ctx withdraws the call until its
// group is begun; after that the outcome is awaited for at most the timeout.
func (g *Gatherer) Publish(ctx context.Context, msgs []redrive.Message) []error {
	errs := make([]error, len(msgs))
	items := NewItems(msgs, g.Masks, errs)
	if len(items) == 0 {
		return OrNil(errs)
	}
	if !g.publish(ctx, items) {
		fail(items, ctx.Err())
		return errs
	}
	for _, it := range items {
		it.From.ID = it.ID // also if the outcome is unknown: repeated under this id, it is recognised
	}
	return OrNil(errs)
}

// publish has items stored, and reports false if ctx ended before they were sent.
func (g *Gatherer) publish(ctx context.Context, items []*Item) bool {
	c := &call{items: items, ended: make(chan struct{}), single: g.Single != nil && g.Single(items)}
	for _, it := range items {
		c.size += it.Size()
	}
	g.mu.Lock()
	if g.closed {
		g.mu.Unlock()
		fail(items, redrive.ErrClosed)
		return true
	}
	g.waiting = append(g.waiting, c)
	if g.active < gatherers {
		g.active++
		g.done.Go(g.work)
	}
	g.mu.Unlock()
	select {
	case <-c.ended:
		return true
	case <-ctx.Done():
	}
	g.mu.Lock()
	if !c.taken {
		for i, w := range g.waiting {
			if w == c {
				g.waiting = append(g.waiting[:i], g.waiting[i+1:]...)
				break
			}
		}
		g.mu.Unlock()
		return false
	}
	g.mu.Unlock()
	<-c.ended
	return true
}

// work stores group after group until nothing waits.
func (g *Gatherer) work() {
	for {
		group := g.take()
		if group == nil {
			return
		}
		g.store(group)
		for _, c := range group {
			close(c.ended)
		}
	}
}

// take removes the next group, or ends the worker.
func (g *Gatherer) take() []*call {
	g.mu.Lock()
	defer g.mu.Unlock()
	n, items, size := 0, 0, 0
	for _, c := range g.waiting {
		if n > 0 && (items+len(c.items) > gatherItems || size+c.size > g.Bytes || c.single) {
			break
		}
		n, items, size = n+1, items+len(c.items), size+c.size
		c.taken = true
		if c.single {
			break
		}
	}
	if n == 0 {
		g.active--
		return nil
	}
	group := g.waiting[:n:n]
	g.waiting = g.waiting[n:]
	return group
}

// Close lets what waits be stored, and refuses what comes.
func (g *Gatherer) Close() {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	g.done.Wait()
}

func fail(items []*Item, err error) {
	for _, it := range items {
		*it.Result = err
	}
}

// store stores the messages of some calls.
func (g *Gatherer) store(group []*call) {
	ctx, cancel := context.WithTimeout(context.Background(), g.Timeout)
	defer cancel()
	items := group[0].items
	for _, c := range group[1:] {
		items = append(items[:len(items):len(items)], c.items...)
	}
	err := g.Store(ctx, items, group[0].single)
	if err != nil && len(group) > 1 && g.AtFault(err) {
		for _, c := range group { // one of them is at fault: each for itself
			g.store([]*call{c})
		}
		return
	}
	if err != nil {
		err = g.Fault("publish", err)
		for _, it := range items {
			if !it.Done {
				*it.Result = err
			}
		}
	}
	g.Changed(QueuesOf(items)...)
}
