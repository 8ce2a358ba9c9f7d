// Package gather carries out together what calls bring that wait at the same time: a group commit.
package gather

import (
	"context"
	"slices"
	"sync"

	"github.com/redrive/redrive"
)

// Calls gathers calls that carry a C. There is no timer: the next group holds whatever came in while
// the last ones were under way, so that a caller that comes by itself waits for nobody. Its fields are
// set before it is used; it is safe for concurrent use.
type Calls[C any] struct {
	// Do carries out a group, in the order in which the calls came.
	Do func(group []C)
	// Groups is how many may be under way at once, Items and Bytes bound each, but for a call that is larger.
	Groups, Items, Bytes int

	mu      sync.Mutex
	waiting []*call[C]
	active  int
	closed  bool
	done    sync.WaitGroup
}

// Size is what a call adds to its group.
type Size struct {
	Items, Bytes int
	Single       bool // it shares its group with no other
}

type call[C any] struct {
	with  C
	size  Size
	taken bool // guarded by Calls.mu
	ended chan struct{}
}

// Call has a call carried out, and returns when it was. ctx withdraws it until its group is begun: then it
// returns the context's error. After Close it returns [redrive.ErrClosed].
func (g *Calls[C]) Call(ctx context.Context, with C, size Size) error {
	c := &call[C]{with: with, size: size, ended: make(chan struct{})}
	g.mu.Lock()
	if g.closed {
		g.mu.Unlock()
		return redrive.ErrClosed
	}
	g.waiting = append(g.waiting, c)
	if g.active < g.Groups {
		g.active++
		g.done.Go(g.work)
	}
	g.mu.Unlock()
	select {
	case <-c.ended:
		return nil
	case <-ctx.Done():
	}
	g.mu.Lock()
	if !c.taken {
		g.waiting = slices.DeleteFunc(g.waiting, func(w *call[C]) bool { return w == c })
		g.mu.Unlock()
		return ctx.Err()
	}
	g.mu.Unlock()
	<-c.ended
	return nil
}

// Close lets what waits be carried out, and refuses what comes.
func (g *Calls[C]) Close() {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	g.done.Wait()
}

// work carries out group after group until nothing waits.
func (g *Calls[C]) work() {
	for {
		group := g.take()
		if group == nil {
			return
		}
		with := make([]C, len(group))
		for i, c := range group {
			with[i] = c.with
		}
		g.Do(with)
		for _, c := range group {
			close(c.ended)
		}
	}
}

// take removes the next group, or ends the worker.
func (g *Calls[C]) take() []*call[C] {
	g.mu.Lock()
	defer g.mu.Unlock()
	n, sum := 0, Size{}
	for _, c := range g.waiting {
		if n > 0 && (sum.Items+c.size.Items > g.Items || sum.Bytes+c.size.Bytes > g.Bytes || c.size.Single) {
			break
		}
		n, sum.Items, sum.Bytes = n+1, sum.Items+c.size.Items, sum.Bytes+c.size.Bytes
		c.taken = true
		if c.size.Single {
			break
		}
	}
	if n == 0 {
		g.active--
		return nil
	}
	group := slices.Clone(g.waiting[:n])
	g.waiting = slices.Delete(g.waiting, 0, n)
	return group
}
