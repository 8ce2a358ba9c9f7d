package engine

import (
	"errors"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// feed is a consumer's view of one source.
type feed struct {
	c       *consumer
	src     driver.Source
	caps    driver.Caps
	hub     *hub
	settler *settler

	// Under the consumer's lock.
	lanes    driver.LaneSet // may have something due
	empty    driver.LaneSet // were found empty since the last event or look, though something was said to be due
	suspects bool           // something may be claimed in isolation
	refresh  bool           // ask the source what is due next
	wait     time.Duration  // before asking again for what was said to be due and not found
	dueAt    time.Time      // then ask again; zero: nothing is known to become due
	events   uint64         // how many the source has sent
}

// buries reports whether a sink of dead letters is the source itself, which takes them
// when they are settled, in whatever way it has to move them.
func (f *feed) buries(sink driver.DeadLetterSink) bool {
	p, parks := f.src.(*parking)
	if !parks || !p.caps.DeadLetters || !p.caps.KeepsHistory {
		return false
	}
	own, ok := driver.As[driver.DeadLetterSink](p.Source)
	return ok && own == sink
}

// notify takes an event of the source.
func (f *feed) notify(ev *driver.Event, now time.Time) {
	c := f.c
	c.mu.Lock()
	defer c.mu.Unlock()
	f.events++
	f.empty, f.wait = 0, 0
	c.learnLocked(f, ev, now)
	if f.lanes != 0 || f.suspects {
		c.wakeLocked()
	} else if !f.dueAt.IsZero() {
		c.timerLocked(f.dueAt)
	}
}

// learnLocked keeps what a source said about its queue.
func (c *consumer) learnLocked(f *feed, ev *driver.Event, now time.Time) {
	f.refresh = false
	f.suspects = ev.Suspects
	f.dueAt = time.Time{}
	switch {
	case ev.NextDueIn <= 0:
		f.lanes |= ev.Lanes
	case ev.NextDueIn < driver.Never:
		f.dueAt = now.Add(ev.NextDueIn)
	}
}

// refreshFeed asks the source what is due next, where that is not known.
func (c *consumer) refreshFeed(f *feed) {
	c.mu.Lock()
	ask := f.refresh && !c.stopped
	before := f.events
	c.mu.Unlock()
	if !ask {
		return
	}
	events, err := f.src.Wait(c.e.run, []driver.Watch{{Queue: c.queue}})
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if f.events != before {
		// The event may be newer than the answer: a retry that became due in between
		// would be forgotten. If it is older, the next event follows at once.
		return
	}
	if err != nil || len(events) == 0 {
		if c.e.run.Err() == nil && !errors.Is(err, redrive.ErrClosed) {
			f.dueAt = now.Add(claimRetry)
			c.timerLocked(f.dueAt)
		}
		return
	}
	ev := events[0]
	// What is said to be due and was just found empty is not for us: of a kind that
	// nobody handles, or excluded. We look again later, or at the next event.
	missing := ev.NextDueIn <= 0 && f.empty&ev.Lanes != 0
	ev.Lanes &^= f.empty
	c.learnLocked(f, &ev, now)
	if missing {
		f.wait = min(max(2*f.wait, claimSoon), claimRetry)
		f.dueAt = now.Add(f.wait)
	}
	if !f.dueAt.IsZero() {
		c.timerLocked(f.dueAt)
	}
	if f.lanes != 0 || f.suspects && !now.Before(c.isolateAt) {
		c.again = true
	}
}
