// Package series counts what a daemon publishes and delivers, by queue and minute, for the
// last hour, in its memory.
package series

import (
	"math"
	"sync"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/engine"
)

// Bounds.
const (
	Minutes     = 60   // that are counted
	KindMinutes = 15   // of these, in which deliveries are also counted by kind
	MaxQueues   = 1000 // that are counted at a time
	kinds       = 64   // of a queue and minute that are counted by themselves
)

// Series counts. It is an [engine.Observer]. All methods are safe for concurrent use.
type Series struct {
	began time.Time

	mu     sync.RWMutex
	queues map[string]*queue
	full   bool // once a queue found no room
}

// New returns a Series that counts from now on.
func New() *Series { return &Series{began: time.Now(), queues: make(map[string]*queue)} }

// queue is what became of a queue's messages.
type queue struct {
	since time.Time

	mu      sync.Mutex
	minutes [Minutes]minute
}

type minute struct {
	number                             int64 // since 1970
	published, delivered, failed, dead int64
	kinds                              map[string]int64 // delivered, by kind
	took                               *durations       // of attempts that delivered; nil: none
}

// Point is what happened in one minute.
type Point struct {
	Start     time.Time
	Published int64         // accepted into the queue
	Delivered int64         // messages that ended as done
	Failed    int64         // attempts
	Dead      int64         // messages that an attempt here dead-lettered
	P95       time.Duration // 95 of 100 attempts that delivered took at most this; at most 19 % too large; 0: none did
}

// Observe implements [engine.Observer].
func (s *Series) Observe(o *engine.Observation) {
	switch {
	case o.Occasion == engine.OnEnd && o.Err != nil:
		s.add(o.Queue, func(m *minute) { m.failed++ })
	case o.Occasion == engine.OnEnd && o.Settlement != nil && o.Settlement.Outcome == redrive.OutcomeDone:
		s.add(o.Queue, func(m *minute) {
			if m.took == nil {
				m.took = new(durations)
			}
			m.took.add(o.Duration)
		})
	case o.Occasion == engine.OnSettled && o.Settlement != nil:
		for i := range o.Settlement.Emit {
			s.Published(o.Settlement.Emit[i].Queue, 1)
		}
		s.settled(o)
	}
}

func (s *Series) settled(o *engine.Observation) {
	switch o.Settlement.Outcome {
	case redrive.OutcomeDead:
		s.add(o.Queue, func(m *minute) { m.dead++ })
	case redrive.OutcomeDone:
		kind := ""
		if o.Delivery != nil {
			kind = o.Delivery.Kind
		}
		s.add(o.Queue, func(m *minute) {
			m.delivered++
			if m.kinds == nil {
				m.kinds = make(map[string]int64)
			}
			if _, known := m.kinds[kind]; known || len(m.kinds) < kinds {
				m.kinds[kind]++
			}
		})
	}
}

// Published counts messages that were accepted into a queue.
func (s *Series) Published(queue string, n int) {
	if n > 0 {
		s.add(queue, func(m *minute) { m.published += int64(n) })
	}
}

// add changes the present minute of a queue, if there is room for the queue.
func (s *Series) add(name string, change func(*minute)) {
	now := time.Now()
	s.mu.RLock()
	q := s.queues[name]
	s.mu.RUnlock()
	if q == nil {
		if q = s.enter(name, now); q == nil {
			return
		}
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	change(q.at(now))
}

// enter begins to count a queue. Where there is no room, those in which nothing happened for an
// hour are forgotten: they are all zeros.
func (s *Series) enter(name string, now time.Time) *queue {
	s.mu.Lock()
	defer s.mu.Unlock()
	if q := s.queues[name]; q != nil {
		return q
	}
	if len(s.queues) >= MaxQueues {
		for other, q := range s.queues {
			if q.idle(now) {
				delete(s.queues, other)
			}
		}
	}
	if len(s.queues) >= MaxQueues {
		s.full = true
		return nil
	}
	q := &queue{since: s.began}
	if s.full { // it may be one that found no room
		q.since = now
	}
	s.queues[name] = q
	return q
}

func (q *queue) idle(now time.Time) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	for i := range q.minutes {
		if q.minutes[i].number > number(now)-Minutes {
			return false
		}
	}
	return true
}

func number(t time.Time) int64 { return t.Unix() / 60 }

// at returns a minute to count in, which may be the first to come there.
func (q *queue) at(now time.Time) *minute {
	n := number(now)
	m := &q.minutes[n%Minutes]
	if m.number == n {
		return m
	}
	*m = minute{number: n}
	for i := range q.minutes {
		if q.minutes[i].number <= n-KindMinutes {
			q.minutes[i].kinds = nil
		}
	}
	return m
}

// Of returns the minutes of a queue, the oldest first and the present one last, without gaps, and
// since when they are counted: not before the start of the process. ok is false where there was no room.
func (s *Series) Of(name string) (points []Point, since time.Time, ok bool) {
	now := time.Now()
	s.mu.RLock()
	q, full := s.queues[name], s.full
	s.mu.RUnlock()
	since, ok = s.began, q != nil || !full
	if !ok {
		return nil, now, false
	}
	if q != nil {
		since = q.since
	}
	first := max(number(now)-Minutes+1, number(since))
	for n := first; n <= number(now); n++ {
		p := Point{Start: time.Unix(n*60, 0).UTC()}
		if q != nil {
			q.fill(n, &p)
		}
		points = append(points, p)
	}
	return points, since, true
}

func (q *queue) fill(n int64, p *Point) {
	q.mu.Lock()
	defer q.mu.Unlock()
	m := &q.minutes[n%Minutes]
	if m.number != n {
		return
	}
	p.Published, p.Delivered, p.Failed, p.Dead = m.published, m.delivered, m.failed, m.dead
	if m.took != nil {
		p.P95 = m.took.quantile(0.95)
	}
}

// Sum is what became of a queue's attempts in some minutes.
type Sum struct {
	Delivered, Failed, KindDelivered int64
	Minutes                          int // in which anything ended
}

// In sums up those of the last [KindMinutes] minutes that are named, as numbers since 1970, or all of
// them if none are.
func (s *Series) In(name string, minutes map[int64]bool, kinds map[string]bool, now time.Time) (sum Sum) {
	s.mu.RLock()
	q := s.queues[name]
	s.mu.RUnlock()
	if q == nil {
		return sum
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for i := range q.minutes {
		m := &q.minutes[i]
		ago := number(now) - m.number
		if ago < 0 || ago >= KindMinutes || m.delivered+m.failed == 0 || len(minutes) > 0 && !minutes[m.number] {
			continue
		}
		sum.Minutes++
		sum.Delivered += m.delivered
		sum.Failed += m.failed
		for kind, n := range m.kinds {
			if kinds[kind] {
				sum.KindDelivered += n
			}
		}
	}
	return sum
}

// durations are how long something took: counts by steps of a fourth of an octave, from a
// millisecond on.
type durations [steps]uint32

const (
	steps     = 80 // to 17 minutes
	perOctave = 4
)

func (d *durations) add(took time.Duration) {
	step := 0
	if took > time.Millisecond {
		step = min(int(math.Ceil(math.Log2(float64(took)/float64(time.Millisecond))*perOctave)), steps-1)
	}
	d[step]++
}

// quantile returns the upper bound of the step in which it lies.
func (d *durations) quantile(q float64) time.Duration {
	total := uint64(0)
	for _, n := range d {
		total += uint64(n)
	}
	rank, seen := uint64(math.Ceil(q*float64(total))), uint64(0)
	for step, n := range d {
		if seen += uint64(n); seen >= rank {
			return time.Duration(math.Exp2(float64(step)/perOctave) * float64(time.Millisecond)).Round(100 * time.Microsecond)
		}
	}
	return 0
}
