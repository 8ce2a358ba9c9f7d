package postgres

import (
	"context"
	"sync"
	"time"

	"github.com/redrive/redrive"
)

// Bounds of one statement that calls share.
const (
	gatherItems = 1000
	gatherBytes = 8 << 20
	gatherers   = 2 // statements in flight: one is planned while the other is synced
)

// gatherer makes one statement of the Publish calls that wait at the same time. There
// is no timer: the next statement holds whatever came in while the last ones ran.
type gatherer struct {
	store *Store

	mu      sync.Mutex
	waiting []*call
	active  int
	closed  bool
	done    sync.WaitGroup
}

// call is one Publish.
type call struct {
	items  []*item
	size   int
	taken  bool // guarded by gatherer.mu
	ended  chan struct{}
	copied bool // goes by COPY, on its own
}

// publish has items stored, and reports false if ctx ended before they were sent.
func (g *gatherer) publish(ctx context.Context, items []*item) bool {
	c := &call{items: items, ended: make(chan struct{}), copied: copies(items)}
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
func (g *gatherer) work() {
	for {
		group := g.take()
		if group == nil {
			return
		}
		g.store.publishGroup(group)
		for _, c := range group {
			close(c.ended)
		}
	}
}

// take removes the next group, or ends the worker.
func (g *gatherer) take() []*call {
	g.mu.Lock()
	defer g.mu.Unlock()
	n, items, size := 0, 0, 0
	for _, c := range g.waiting {
		if n > 0 && (items+len(c.items) > gatherItems || size+c.size > gatherBytes || c.copied) {
			break
		}
		n, items, size = n+1, items+len(c.items), size+c.size
		c.taken = true
		if c.copied {
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

// close lets what waits be stored, and refuses what comes.
func (g *gatherer) close() {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	g.done.Wait()
}

func fail(items []*item, err error) {
	for _, it := range items {
		*it.result = err
	}
}

// publishGroup stores the messages of some calls in one statement.
func (s *Store) publishGroup(group []*call) {
	ctx, cancel := context.WithTimeout(context.Background(), s.timeout)
	defer cancel()
	items := group[0].items
	for _, c := range group[1:] {
		items = append(items[:len(items):len(items)], c.items...)
	}
	err := s.publishItems(ctx, items, group[0].copied)
	if err != nil && len(group) > 1 && dataError(err) {
		for _, c := range group { // one of them is at fault: each for itself
			s.publishGroup([]*call{c})
		}
		return
	}
	if err != nil {
		err = fault("publish", err)
		for _, it := range items {
			if !it.done {
				*it.result = err
			}
		}
	}
	s.changed(queuesOf(items)...)
}

func (s *Store) publishItems(ctx context.Context, items []*item, copied bool) (err error) {
	defer func(began time.Time) { s.observe("publish", began, err) }(time.Now())
	if copied {
		return s.copy(ctx, items)
	}
	return again(ctx, func() error {
		conn, err := s.acquire(ctx)
		if err != nil {
			return err
		}
		defer conn.Release()
		return store(ctx, pgxDB{conn}, s.sql, items)
	})
}
