package engine

import (
	"log/slog"
	"math"
	"slices"
	"time"
)

// Kinds that hold their slots long, such as messages at which the target hangs, get what the
// others do not use. Which those are is looked up from time to time.
const (
	longHeld   = time.Second // a slot that is taken for longer is held long
	longLooks  = 500 * time.Millisecond
	longKept   = 30 * time.Second // that a kind held slots long is remembered
	longShare  = 20               // such kinds get this part of the slots in any case
	usualDecay = 10 * time.Second // of what the others use
	usualSpare = 1.25             // of that is kept free for them
	usualLeast = 0.01             // slots; less is nothing
	maxKinds   = 256              // that are watched
)

// kindUse is what the messages of a kind do with the slots of a queue.
type kindUse struct {
	kind   string
	busy   int           // slots taken
	long   int           // of them held long
	longAt time.Time     // when one was last
	slow   bool          // it gets what the others do not use
	brief  time.Duration // slot time since the last look, of attempts that did not last long
	usual  float64       // slots that those took, at the peaks of the last time
}

// kindRoomLocked bounds a claim of n by the room of kinds that have a limit of their own
// ([redrive.WithConcurrency]) or hold their slots long, as all of it might be of one kind.
// Kinds without room are not to be claimed; there is no room at all at a source that cannot
// leave out those with a limit of their own. look: this time other kinds are looked for than
// these, which have taken all slots for long.
func (c *consumer) kindRoomLocked(f *feed, o *consumerConfig, n int) (room int, full, look []string) {
	bound := func(kinds []string, most int) {
		if free := most - c.busyLocked(kinds); free > 0 {
			n = min(n, free)
		} else {
			full = append(full, kinds...)
		}
	}
	for i := range o.policies.limits {
		bound(o.policies.limits[i].kinds, o.policies.limits[i].max)
	}
	if !f.caps.Filters {
		if len(full) > 0 {
			n = 0
		}
		return n, nil, nil
	}
	switch {
	case len(c.slow) == 0:
	case c.slowMost < o.Concurrency:
		bound(c.slow, c.slowMost)
	case c.askOthers:
		c.askOthers = false
		return n, full, c.slow
	}
	return n, full, nil
}

// busyLocked returns how many slots some kinds have taken.
func (c *consumer) busyLocked(kinds []string) (n int) {
	for _, kind := range kinds {
		if u := c.uses[kind]; u != nil {
			n += u.busy
		}
	}
	return n
}

// enterKindLocked counts an attempt for its kind.
func (c *consumer) enterKindLocked(a *attempt) {
	u := c.lastUse
	if u == nil || u.kind != a.d.Kind {
		if u = c.uses[a.d.Kind]; u == nil {
			u = &kindUse{kind: a.d.Kind}
			if len(c.uses) < maxKinds || a.o.policies.limit(a.d.Kind) != nil {
				c.uses[u.kind] = u
			}
		}
		c.lastUse = u
	}
	u.busy++
	a.use = u
}

// leaveKindLocked takes an attempt from its kind. What was not claimed because of it is
// looked for again.
func (c *consumer) leaveKindLocked(a *attempt) {
	u := a.use
	u.busy--
	again := false
	if held := max(a.endedAt.Sub(a.began), 0); a.long || held >= longHeld {
		u.longAt = time.Now()
		if a.long {
			u.long--
		}
		again = u.slow && c.busyLocked(c.slow) == c.slowMost-1
	} else {
		u.brief += held
		if u.slow { // it hangs no more
			u.slow, again = false, true
			c.slow = slices.DeleteFunc(c.slow, func(kind string) bool { return kind == u.kind })
		}
	}
	if l := c.options().policies.limit(u.kind); l != nil && c.busyLocked(l.kinds) == l.max-1 {
		again = true
	}
	if again {
		c.lookAgainLocked()
	}
}

// lookAgainLocked has the sources asked again what is due, as more of it may be claimed.
func (c *consumer) lookAgainLocked() {
	for _, f := range c.feeds {
		f.refresh, f.empty, f.wait = true, 0, 0
	}
}

// lookAtKindsLocked finds out which kinds hold their slots long and what the others use, and
// returns the kinds that are bounded from now on.
func (c *consumer) lookAtKindsLocked(o *consumerConfig, now time.Time) (bounded []string) {
	passed := now.Sub(c.lookedAt)
	if passed < longLooks {
		return nil
	}
	c.lookedAt = now
	for a := c.first; a != nil; a = a.next {
		if !a.long && !a.returned && !a.deadline.IsZero() && now.Sub(a.began) >= longHeld {
			a.long = true
			a.use.long++
		}
	}
	share := max(o.Concurrency/longShare, 1)
	others, before, most := 0.0, c.slow, c.slowMost
	c.slow, c.slowMost, c.askOthers = nil, o.Concurrency, true
	for kind, u := range c.uses {
		u.look(now, passed, c.busy < o.Concurrency)
		switch {
		case o.policies.limit(kind) != nil: // somebody has said how many slots it may take
			u.slow = false
		case u.long >= share && 2*u.long >= u.busy:
			u.slow = true
		case now.Sub(u.longAt) >= longKept:
			u.slow = false
		}
		switch {
		case u.slow:
			c.slow = append(c.slow, kind)
		case u.busy == 0 && u.usual < usualLeast:
			delete(c.uses, kind)
		default:
			others += u.usual
		}
	}
	if others >= usualLeast {
		c.slowMost = max(o.Concurrency-int(math.Ceil(usualSpare*others)), share)
	}
	if len(c.slow) < len(before) || c.slowMost > most {
		c.lookAgainLocked()
		c.wakeLocked()
	}
	if c.slowMost == o.Concurrency {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(c.slow), func(kind string) bool { return most < o.Concurrency && slices.Contains(before, kind) })
}

// look takes what a kind did since the last look. What it used is not forgotten while all
// slots are taken, as it may want more than it gets.
func (u *kindUse) look(now time.Time, passed time.Duration, free bool) {
	if brief := u.brief.Seconds() / passed.Seconds(); brief >= u.usual {
		u.usual = brief
	} else if free {
		u.usual *= math.Exp(-passed.Seconds() / usualDecay.Seconds())
	}
	u.brief = 0
	if u.long > 0 {
		u.longAt = now
	}
}

// warnOfKinds says which kinds are bounded from now on.
func (c *consumer) warnOfKinds(kinds []string) {
	for _, kind := range kinds {
		c.e.log.LogAttrs(c.e.base, slog.LevelWarn, "kind holds its slots long: it gets those that other kinds leave", slog.String("queue", c.queue), slog.String("kind", kind))
	}
}
