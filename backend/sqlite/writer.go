package sqlite

import (
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"time"

	"github.com/redrive/redrive"
)

// A group of operations is one transaction, and one sync.
const (
	groupItems = 4096
	groupBytes = 8 << 20
)

// Lines in front of the writer. A group takes from them in turn, so that a flood
// in one of them does not starve the others.
const (
	lineDeliver = iota // claims, settlements, extensions
	linePublish
	lineOther // everything else
	lines
)

// operation is what the writer carries out for a caller who waits for it.
type operation interface {
	// run works within the transaction. It may be run again after a rollback, and
	// then begins anew. Its results hold only once end is called with nil.
	run(t *tx)
	// end is called once: with nil after the commit.
	end(err error)
	base() *op
}

// op is what all operations have.
type op struct {
	done    chan struct{}
	items   int
	bytes   int
	durable bool // the commit must be synced
	grows   bool // stores messages: first to fail when the disk is full
}

func newOp(items, bytes int, durable, grows bool) op {
	return op{done: make(chan struct{}), items: items, bytes: bytes, durable: durable, grows: grows}
}

func (o *op) base() *op { return o }

// submit hands an operation to the writer and waits until it has ended. When
// canceled is closed before the writer took it, it is withdrawn and submit reports
// false.
func (s *Store) submit(line int, o operation, canceled <-chan struct{}) (bool, error) {
	s.lineMu.Lock()
	if s.stopped != nil {
		err := s.stopped
		s.lineMu.Unlock()
		return true, err
	}
	s.lines[line] = append(s.lines[line], o)
	s.lineMu.Unlock()
	s.nudge()
	done := o.base().done
	select {
	case <-done:
		return true, nil
	case <-canceled:
	}
	s.lineMu.Lock()
	if i := slices.Index(s.lines[line], o); i >= 0 {
		s.lines[line] = slices.Delete(s.lines[line], i, i+1)
		s.lineMu.Unlock()
		return false, nil
	}
	s.lineMu.Unlock()
	<-done // it is being written: what becomes of it is known soon
	return true, nil
}

// nudge wakes the writer.
func (s *Store) nudge() {
	select {
	case s.work <- struct{}{}:
	default:
	}
}

// gather takes the next group: from each line in turn, one operation at a time,
// until the group is full or nothing is left.
func (s *Store) gather(group []operation, quick bool) []operation {
	s.lineMu.Lock()
	defer s.lineMu.Unlock()
	if quick {
		return s.gatherQuick(group)
	}
	var taken [lines]int
	items, bytes := 0, 0
	for more := true; more && items < groupItems && bytes < groupBytes; {
		more = false
		for line := range s.lines {
			if taken[line] == len(s.lines[line]) {
				continue
			}
			o := s.lines[line][taken[line]]
			taken[line]++
			group = append(group, o)
			items += o.base().items
			bytes += o.base().bytes
			more = true
		}
	}
	for line, n := range taken {
		rest := copy(s.lines[line], s.lines[line][n:])
		clear(s.lines[line][rest:])
		s.lines[line] = s.lines[line][:rest]
	}
	return group
}

// gatherQuick takes only what needs no sync: claims need not wait for one.
func (s *Store) gatherQuick(group []operation) []operation {
	for line := range s.lines {
		s.lines[line] = slices.DeleteFunc(s.lines[line], func(o operation) bool {
			quick := !o.base().durable
			if quick {
				group = append(group, o)
			}
			return quick
		})
	}
	return group
}

// writeLoop is the writer: the only goroutine that changes the file.
func (s *Store) writeLoop() {
	var group []operation
	defer close(s.writerDone)
	defer func() {
		if p := recover(); p != nil {
			s.fatal(fmt.Errorf("the writer panicked: %v\n%s", p, debug.Stack()))
			endAll(unanswered(group), s.failed())
			s.endRest()
		}
	}()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		clear(group)
		check := s.checkAnchors()
		group = s.gather(group[:0], s.syncer.full())
		if len(group) == 0 && !s.lapsing() {
			timer.Reset(min(s.idle(), check))
			select {
			case <-s.work:
			case <-timer.C:
			case <-s.quit:
				return
			}
			continue
		}
		s.writeGroup(group)
		clear(group) // the syncer may have them now
		s.maintain()
	}
}

// lapsing reports whether a lease has run out.
func (s *Store) lapsing() bool {
	return len(s.leases.ends) > 0 && s.leases.ends[0].until <= s.now() && s.failed() == nil
}

// writeGroup carries out a group, repeating it more carefully if it fails as a
// whole.
func (s *Store) writeGroup(group []operation) {
	if err := s.failed(); err != nil {
		endAll(group, err)
		return
	}
	growing := slices.ContainsFunc(group, func(o operation) bool { return o.base().grows })
	if growing {
		s.checkReserve()
	}
	if growing && s.reserve.size > 0 && s.Full() != nil {
		group, growing = refuseGrowth(group, s.Full()), false
	}
	err := s.attempt(group, false)
	if err != nil && !errors.Is(err, redrive.ErrFull) && !isFatal(err) && !isCorrupt(err) {
		err = s.attempt(group, true)
	}
	if isFull(err) {
		if group, err = s.attemptFull(group, err); isFull(err) {
			err = s.Full()
		}
	} else if err == nil && growing {
		s.setRoom()
	}
	switch {
	case err == nil:
	case isFatal(err):
		s.fatal(err)
		endAll(group, s.failed())
	case isCorrupt(err):
		endAll(group, s.corrupt(err))
	default:
		endAll(group, err)
	}
}

func endAll(group []operation, err error) {
	for _, o := range group {
		o.end(err)
		close(o.base().done)
	}
}

// unanswered returns the operations of a group whose callers still wait.
func unanswered(group []operation) []operation {
	return slices.DeleteFunc(slices.Clone(group), func(o operation) bool {
		if o == nil {
			return true
		}
		select {
		case <-o.base().done:
			return true
		default:
			return false
		}
	})
}

// attempt runs a group in one transaction and answers it after the commit. On an
// error nothing has happened and nobody was answered.
func (s *Store) attempt(group []operation, careful bool) error {
	t := &tx{s: s, now: s.now(), careful: careful}
	for _, o := range group {
		t.durable = t.durable || o.base().durable
	}
	t.run(group)
	if err := t.commit(); err != nil {
		return err
	}
	if !t.durable || !t.began {
		endAll(group, nil)
		return nil
	}
	later := make([]operation, 0, len(group))
	for _, o := range group {
		if o.base().durable {
			later = append(later, o)
			continue
		}
		o.end(nil)
		close(o.base().done)
	}
	s.syncer.add(later, s.nextPosition())
	return nil
}
