package sqlite

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// ofCause builds the condition of a query by queue, reason and signature.
type ofCause struct {
	where []string
	bind  []func(*stmt)
}

// anyReason names all reasons, so that the index of causes leads to a signature of any.
var anyReason = func() string {
	var list []string
	for r := redrive.ReasonExhausted; r <= driver.LastReason; r++ {
		list = append(list, fmt.Sprint(int(r)))
	}
	return strings.Join(list, ", ")
}()

func (s *Store) ofCause(q *redrive.Query) *ofCause {
	o := &ofCause{where: []string{"1"}}
	if q.Queue != "" {
		number := int64(-1)
		if found := s.queueNamed(q.Queue); found != nil {
			number = s.numberOf(found)
		}
		o.add("c.queue = ?", func(st *stmt) { st.int(number) })
	}
	switch {
	case q.Reason != 0:
		o.add("c.reason = ?", func(st *stmt) { st.int(int64(q.Reason)) })
	case q.Signature != "":
		o.where = append(o.where, "c.reason IN (0, "+anyReason+")")
	}
	if q.Signature != "" {
		o.add("c.signature = ?", func(st *stmt) { st.text(q.Signature) })
	}
	return o
}

// after narrows it to what comes after a cause in its table.
func (o *ofCause) after(s *Store, at *driver.Cause) {
	if q := s.queueNamed(at.Queue); q != nil {
		number := s.numberOf(q)
		o.add("(c.queue, c.reason, c.signature) > (?, ?, ?)", func(st *stmt) { st.int(number).int(int64(at.Reason)).text(at.Signature) })
	}
}

func (o *ofCause) add(where string, bind func(*stmt)) {
	o.where = append(o.where, where)
	o.bind = append(o.bind, bind)
}

// read prepares a statement, whose %s is the condition, and binds its values.
func (o *ofCause) read(c *conn, sql string) *stmt {
	st := c.stmt(fmt.Sprintf(sql, strings.Join(o.where, " AND ")))
	for _, bind := range o.bind {
		bind(st)
	}
	return st
}

// isOfCause reports whether a query asks by queue, state, reason and signature only.
func isOfCause(q redrive.Query) bool {
	q.Queue, q.State, q.Reason, q.Signature, q.Limit, q.Bodies = "", 0, 0, "", 0, false
	return q == redrive.Query{}
}

// Count implements driver.Store.
func (s *Store) Count(ctx context.Context, q redrive.Query) (driver.Count, error) {
	dead := q.State == redrive.StateDead || q.State == 0 && (q.Reason != 0 || q.Signature != "")
	rest := q
	rest.Until = time.Time{}
	switch {
	case dead && isOfCause(rest):
		return s.countOfCause(ctx, &q)
	case isOfCause(q) && q.Reason == 0 && q.Signature == "":
		return s.countState(&q)
	case isOfText(q):
		if c, ok, err := s.countOfText(ctx, &q); ok || err != nil {
			return c, err
		}
	}
	return driver.CountFound(ctx, s.Find, q)
}

// countOfCause counts dead letters: all of their causes, less those that died after a cutoff.
func (s *Store) countOfCause(ctx context.Context, q *redrive.Query) (driver.Count, error) {
	c := driver.Count{Complete: true}
	err := s.read(ctx, func(r *conn) error {
		return snapshot(r, func() error {
			cause := s.ofCause(q)
			n, err := cause.read(r, `SELECT coalesce(sum(dead), 0) FROM cause c WHERE %s`).one()
			if err != nil || q.Until.IsZero() {
				c.N = n
				return err
			}
			until := nanos(q.Until)
			if q.Reason == 0 && q.Signature == "" {
				f := finder{s: s, query: q}
				for _, queue := range f.queues() {
					later, err := r.stmt(`SELECT count(*) FROM dead INDEXED BY dead_died WHERE queue = ? AND died > ?`).int(queue.number).int(until).one()
					if err != nil {
						return err
					}
					c.Examined += later
				}
			} else {
				st := cause.read(r, `SELECT count(*) FROM cause c CROSS JOIN dead d INDEXED BY dead_cause
					ON d.queue = c.queue AND d.reason = c.reason AND d.signature = c.signature WHERE %s AND d.died > ?`)
				if c.Examined, err = st.int(until).one(); err != nil {
					return err
				}
			}
			c.N = n - c.Examined
			return nil
		})
	})
	return c, err
}

// countState counts the entries of a state from what is kept in memory.
func (s *Store) countState(q *redrive.Query) (driver.Count, error) {
	c := driver.Count{Complete: true}
	if err := s.closed(); err != nil {
		return c, err
	}
	blockedLeased := s.leasedBlocked(q.Queue)
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, queue := range s.queues {
		if q.Queue != "" && q.Queue != name {
			continue
		}
		st := &queue.shared
		blocked := st.counts[countBlocked] - blockedLeased[name]
		switch q.State {
		case redrive.StateLeased:
			c.N += st.leased
		case redrive.StateBlocked:
			c.N += blocked
		case redrive.StateWaiting:
			c.N += st.counts.waiting() - st.leased - blocked
		default:
			c.N += st.counts.waiting() + st.counts.dead()
		}
	}
	return c, nil
}

// leasedBlocked counts, by queue, messages that were claimed as expired while they were
// blocked.
func (s *Store) leasedBlocked(name string) map[string]int64 {
	s.leaseMu.RLock()
	defer s.leaseMu.RUnlock()
	var n map[string]int64
	for _, l := range s.leases.ends {
		if l.class == classBlocked && !l.dead && (name == "" || name == l.queue.name) {
			if n == nil {
				n = make(map[string]int64)
			}
			n[l.queue.name]++
		}
	}
	return n
}

// Deaths implements driver.Store.
func (s *Store) Deaths(ctx context.Context, q redrive.Query) ([]driver.Deaths, error) {
	var list []driver.Deaths
	err := s.read(ctx, func(r *conn) error {
		list = nil
		st := s.ofCause(&q).read(r, `SELECT n.name, c.reason, c.signature, c.width, c.start, c.deaths FROM bucket c JOIN queue n ON n.queue = c.queue
			WHERE %s AND c.start + c.width > ? ORDER BY n.name, c.reason, c.signature, c.start, c.width DESC`).int(nanos(q.Since))
		for st.next() {
			d := driver.Deaths{Queue: st.colText(0), Reason: redrive.Reason(st.colInt(1)), Signature: st.colText(2)} //nolint:gosec // a reason
			if n := len(list); n == 0 || list[n-1].Queue != d.Queue || list[n-1].Reason != d.Reason || list[n-1].Signature != d.Signature {
				list = append(list, d)
			}
			last := &list[len(list)-1]
			last.Buckets = append(last.Buckets, driver.DeathBucket{Start: timeOf(st.colInt(4)), Width: time.Duration(st.colInt(3)), Count: st.colInt(5)})
		}
		return st.done()
	})
	return list, err
}
