package engine

import (
	"sync"
	"time"
)

// How long a suspect waits for the process to become idle, how often it does, and
// how long suspects in a row keep the others out.
const (
	isolationPatience = 10 * time.Second
	isolationTries    = 3
	isolationSlice    = time.Second
)

// processIsolation is shared by all engines of the process, because it is the process
// that dies of a poison message.
var processIsolation isolation

// isolation lets a suspect be isolated in the process: while somebody wants that, nobody
// claims, and when nothing is in flight any more the one who asked may go.
type isolation struct {
	mu      sync.Mutex
	active  int                    // deliveries that are not settled yet
	owner   *consumer              // who wants, or has, the process for itself
	since   time.Time              // when the owner asked, or got it
	granted bool                   // the owner has it
	waiting map[*consumer]struct{} // whom to wake when it is given back
}

// enter announces up to n deliveries about to be claimed. It refuses while a suspect
// wants to be isolated; c is woken afterwards.
func (s *isolation) enter(c *consumer, n int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.owner != nil {
		if s.waiting == nil {
			s.waiting = make(map[*consumer]struct{})
		}
		s.waiting[c] = struct{}{}
		return false
	}
	s.active += n
	return true
}

// leave takes back n deliveries that ended or were not claimed.
func (s *isolation) leave(n int) {
	if n == 0 {
		return
	}
	s.mu.Lock()
	s.active -= n
	var wake *consumer
	if s.active == 0 {
		wake = s.owner
	}
	s.mu.Unlock()
	if wake != nil {
		wake.wake()
	}
}

// acquire asks for the process. It returns true when nothing else is in flight; else
// the consumer is woken when that is so. After isolationPatience it gives up for a while,
// returning when to try again; the last of isolationTries is granted all the same, so
// that suspects do not wait for ever for a handler that does not end.
func (s *isolation) acquire(c *consumer, now time.Time) (granted bool, again time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.owner == nil:
		s.owner, s.since, s.granted = c, now, false
	case s.owner != c:
		if s.waiting == nil {
			s.waiting = make(map[*consumer]struct{})
		}
		s.waiting[c] = struct{}{}
		return false, time.Time{}
	}
	if s.granted {
		return true, time.Time{}
	}
	patience := s.since.Add(isolationPatience)
	if s.active == 0 || c.isolationTries >= isolationTries && !now.Before(patience) {
		c.isolationTries = 0
		s.granted, s.since = true, now
		return true, time.Time{}
	}
	if now.Before(patience) {
		return false, patience
	}
	c.isolationTries++
	s.releaseLocked()
	return false, now.Add(isolationPatience)
}

// release gives the process back and wakes those who waited.
func (s *isolation) release(c *consumer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.owner == c {
		s.releaseLocked()
	}
}

func (s *isolation) releaseLocked() {
	s.owner, s.granted = nil, false
	for w := range s.waiting {
		go w.wake() // not under our lock: a wake takes the consumer's
	}
	clear(s.waiting)
}

// wanted reports whether c wants, or has, the process.
func (s *isolation) wanted(c *consumer) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.owner == c
}

// held reports whether c has the process, and for how long.
func (s *isolation) held(c *consumer, now time.Time) (bool, time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.owner != c || !s.granted {
		return false, 0
	}
	return true, now.Sub(s.since)
}
