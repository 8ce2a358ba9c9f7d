package memory

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// cause is what dead letters of a queue are counted by.
type cause struct {
	reason    redrive.Reason
	signature string
}

func (it *item) cause() cause {
	c := cause{reason: it.reason}
	if f := it.history.Latest(); f != nil {
		c.signature = f.Signature
	}
	return c
}

// span is a bucket of deaths.
type span struct{ start, width int64 }

// spanOf returns the bucket of what was at a time, and false if it is too old for any.
func spanOf(at, now int64) (span, bool) {
	w := int64(driver.DeathWidth(time.Duration(now - at)))
	if w == 0 {
		return span{}, false
	}
	return span{start: at - at%w, width: w}, true
}

// count counts a dead letter in or out of its cause.
func (q *queue) count(it *item, n int64) {
	c := it.cause()
	if q.causes == nil {
		q.causes = make(map[cause]int64)
	}
	if q.causes[c] += n; q.causes[c] == 0 {
		delete(q.causes, c)
	}
}

// noteDeath counts the death of an item, which is no longer counted out.
func (q *queue) noteDeath(it *item, now int64) {
	b, ok := spanOf(it.died, now)
	if !ok {
		return
	}
	c := it.cause()
	if q.series[c] == nil && len(q.series) >= driver.MaxDeathSeries {
		c = cause{signature: driver.OtherCauses}
	}
	q.addDeaths(c, b, 1)
}

func (q *queue) addDeaths(c cause, b span, n int64) {
	if q.series == nil {
		q.series = make(map[cause]map[span]int64)
	}
	if q.series[c] == nil {
		q.series[c] = make(map[span]int64)
	}
	q.series[c][b] += n
}

// foldDeaths adds buckets that are too old for their width up to wider ones, and removes
// what is too old for any.
func (q *queue) foldDeaths(now int64) {
	for c, buckets := range q.series {
		for b, n := range maps.Clone(buckets) {
			wider, ok := spanOf(b.start, now)
			if ok && wider.width <= b.width {
				continue
			}
			delete(buckets, b)
			if ok {
				buckets[wider] += n
			}
		}
		if len(buckets) == 0 {
			delete(q.series, c)
		}
	}
}

// Deaths implements driver.Store.
func (s *Store) Deaths(ctx context.Context, query redrive.Query) ([]driver.Deaths, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.step.RUnlock()
	names := []string{query.Queue}
	if query.Queue == "" {
		names = s.names()
	}
	var list []driver.Deaths
	for _, name := range names {
		if q := s.lookup(name); q != nil {
			q.mu.Lock()
			list = append(list, q.deathsOf(&query)...)
			q.mu.Unlock()
		}
	}
	return list, nil
}

func (q *queue) deathsOf(query *redrive.Query) (list []driver.Deaths) {
	for c, buckets := range q.series {
		if query.Reason != 0 && query.Reason != c.reason || query.Signature != "" && query.Signature != c.signature {
			continue
		}
		d := driver.Deaths{Queue: q.name, Reason: c.reason, Signature: c.signature}
		for b, n := range buckets {
			one := driver.DeathBucket{Start: moment(b.start), Width: time.Duration(b.width), Count: n}
			if one.Start.Add(one.Width).After(query.Since) {
				d.Buckets = append(d.Buckets, one)
			}
		}
		slices.SortFunc(d.Buckets, func(a, b driver.DeathBucket) int {
			return cmp.Or(a.Start.Compare(b.Start), cmp.Compare(b.Width, a.Width))
		})
		if len(d.Buckets) > 0 {
			list = append(list, d)
		}
	}
	slices.SortFunc(list, func(a, b driver.Deaths) int {
		return cmp.Or(cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.Signature, b.Signature))
	})
	return list
}

// Count implements driver.Store. What is counted by queue and state, dead letters also by reason,
// signature and cutoff, is counted whole.
func (s *Store) Count(ctx context.Context, query redrive.Query) (driver.Count, error) {
	if !isCounted(query) {
		return driver.CountFound(ctx, s.Find, query)
	}
	if err := s.enter(ctx); err != nil {
		return driver.Count{}, err
	}
	defer s.step.RUnlock()
	names := []string{query.Queue}
	if query.Queue == "" {
		names = s.names()
	}
	n, now := driver.Count{Complete: true}, s.now()
	for _, name := range names {
		if q := s.lookup(name); q != nil {
			q.mu.Lock()
			q.refresh(now)
			n.N += q.countOf(&query)
			q.mu.Unlock()
		}
	}
	return n, nil
}

// isCounted reports whether counters answer a query.
func isCounted(q redrive.Query) bool {
	ofDead := q.State == redrive.StateDead || q.Reason != 0 || q.Signature != ""
	if ofDead && (q.State == 0 || q.State == redrive.StateDead) {
		q.Reason, q.Signature, q.Until = 0, "", time.Time{}
	}
	q.Queue, q.State, q.Limit, q.Bodies = "", 0, 0, false
	return q == redrive.Query{}
}

func (q *queue) countOf(query *redrive.Query) (n int64) {
	if query.State != redrive.StateDead && query.Reason == 0 && query.Signature == "" {
		waiting := q.byLane[redrive.LaneFresh] + q.byLane[redrive.LaneRetry] + q.byLane[redrive.LaneRedrive]
		switch query.State {
		case redrive.StateWaiting:
			return waiting - q.leased - q.blocked
		case redrive.StateLeased:
			return q.leased
		case redrive.StateBlocked:
			return q.blocked
		}
		n = waiting
	}
	for c, dead := range q.causes {
		if (query.Reason == 0 || query.Reason == c.reason) && (query.Signature == "" || query.Signature == c.signature) {
			n += dead
		}
	}
	if query.Until.IsZero() {
		return n
	}
	until := nanos(query.Until)
	for it := range q.dead.after(0) {
		if c := it.cause(); it.died > until && (query.Reason == 0 || query.Reason == c.reason) && (query.Signature == "" || query.Signature == c.signature) {
			n--
		}
	}
	return n
}
