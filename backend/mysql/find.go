package mysql

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/sqlstore"
)

// Find implements driver.Store. Waiting messages come in the order of their ids, dead
// letters in that of their death, queue by queue.
func (s *Store) Find(ctx context.Context, q redrive.Query) (driver.Page, error) {
	page := driver.Page{Complete: true}
	if err := s.ready(ctx); err != nil {
		return page, err
	}
	at, err := sqlstore.ParseMark(q.After)
	if err != nil {
		return page, err
	}
	now, err := s.Now(ctx)
	if err != nil {
		return page, err
	}
	f := finder{store: s, query: &q, at: at, now: now, page: &page}
	return page, f.find(ctx)
}

// finder fills a page.
type finder struct {
	store *Store
	query *redrive.Query
	at    sqlstore.PageMark
	now   time.Time
	page  *driver.Page
}

var errFull = errors.New("the page is full")

func (f *finder) find(ctx context.Context) error {
	queues := []string{f.query.Queue}
	if f.query.Queue == "" {
		var err error
		if queues, err = f.store.queueNames(ctx); err != nil {
			return err
		}
	}
	for _, queue := range queues {
		if queue < f.at.Queue {
			continue
		}
		if queue > f.at.Queue {
			f.at = sqlstore.PageMark{Queue: queue}
		}
		for _, dead := range []bool{false, true} {
			if dead && !f.at.Dead {
				f.at = sqlstore.PageMark{Queue: queue, Dead: true}
			}
			if dead != f.at.Dead || !f.wants(dead) {
				continue
			}
			if err := f.search(ctx); err != nil {
				if errors.Is(err, errFull) {
					return nil
				}
				return err
			}
		}
	}
	return nil
}

// wants reports whether waiting or dead messages can be what is looked for.
func (f *finder) wants(dead bool) bool {
	q := f.query
	if dead {
		return q.State == 0 || q.State == redrive.StateDead
	}
	return q.State != redrive.StateDead && q.Reason == 0 && q.Signature == ""
}

// search goes through the waiting or the dead messages of a queue, from f.at on.
func (f *finder) search(ctx context.Context) error {
	bound, reached, err := f.bound(ctx)
	if err != nil {
		return err
	}
	room := f.query.PageLimit() - len(f.page.Entries)
	full := false
	var last sqlstore.PageMark
	name, where := f.statement()
	if reached {
		where.upTo(f.at.Dead, bound)
	}
	st := step{sql: f.store.sql.with(name, ":where", where.sql(), ":parts", f.parts()), args: append(where.args, room+1), scan: func(r row) error {
		m, err := scanMessage(r)
		if err != nil {
			return err
		}
		if room == 0 {
			full = true
			return nil
		}
		room--
		last = sqlstore.PageMark{Queue: m.Queue, Dead: m.Dead, Died: m.Died, ID: m.ID}
		e, err := m.Entry(f.now, f.query.Bodies)
		if err != nil {
			return err
		}
		f.page.Entries = append(f.page.Entries, *e)
		return nil
	}}
	st.sql = strings.ReplaceAll(st.sql, ":now", f.store.sql.clock)
	had := len(f.page.Entries)
	reset := func() {
		f.page.Entries, room, full, last = f.page.Entries[:had], f.query.PageLimit()-had, false, sqlstore.PageMark{}
	}
	if err := f.store.read(ctx, "find", reset, st); err != nil {
		return err
	}
	switch {
	case full:
		if last.ID != "" {
			f.at = last
		}
		f.page.Next = f.at.String()
		return errFull
	case reached:
		f.at.ID, f.at.Died = bound.ID, bound.Died
		f.page.Next, f.page.Complete = f.at.String(), false
		return errFull
	}
	return nil
}

// bound returns where the look must end, if more entries lie before the end than may be
// looked at. What an index serves needs none: everything that is looked at matches.
func (f *finder) bound(ctx context.Context) (at sqlstore.PageMark, reached bool, err error) {
	q := f.query
	plain := redrive.Query{Queue: q.Queue, After: q.After, Limit: q.Limit, Bodies: q.Bodies}
	switch {
	case f.at.Dead:
		plain.State, plain.Since, plain.Until = q.State, q.Since, q.Until
		if q.Reason != 0 && q.Signature != "" {
			plain.Reason, plain.Signature = q.Reason, q.Signature
		}
	case q.Key != "":
		return at, false, nil
	}
	if *q == plain {
		return at, false, nil
	}
	name, where := f.span()
	st := step{sql: f.store.sql.with(name+"_place", ":where", where.sql()), args: append(where.args, redrive.Examined-1), scan: func(r row) error {
		reached = true
		var died *int64
		err := r.Scan(&at.ID, &died)
		at.Died = timeOf(died)
		return err
	}}
	err = f.store.read(ctx, "find_bound", func() { reached = false }, st)
	return at, reached, err
}

// span is the part of the index that is looked at, from f.at on.
func (f *finder) span() (name string, w conditions) {
	q := f.query
	if !f.at.Dead {
		name = "find_waiting"
		w.add("m.queue = ?", []byte(f.at.Queue))
		w.add("m.id > ?", []byte(f.at.ID))
		if q.Key != "" {
			name = "find_key"
			w.add("m.msg_key = ?", []byte(q.Key))
		}
		return name, w
	}
	name = "find_dead"
	w.add("d.queue = ?", []byte(f.at.Queue))
	if q.Reason != 0 && q.Signature != "" {
		name = "find_cause"
		w.add("d.reason = ?", int(q.Reason))
		w.add("d.signature = ?", []byte(q.Signature))
	}
	if !f.at.Died.IsZero() {
		died := micros(f.at.Died)
		w.add("d.died >= ?", died)
		w.add("(d.died > ? OR d.id > ?)", died, []byte(f.at.ID))
	}
	w.died(q)
	return name, w
}

// statement is the query of the phase that f.at is in.
func (f *finder) statement() (name string, w conditions) {
	name, w = f.span()
	q := f.query
	t := "m."
	if f.at.Dead {
		t = "d."
		w.cause(q)
	} else {
		switch q.State {
		case redrive.StateWaiting:
			w.add("(m.class < 4 OR m.class = 5 AND m.due <= :now)")
		case redrive.StateLeased:
			w.add("m.class >= 5 AND m.due > :now")
		case redrive.StateBlocked:
			w.add("(m.class = 4 OR m.class = 6 AND m.due <= :now)")
		}
		if !q.Since.IsZero() {
			w.add("m.published >= ?", micros(q.Since))
		}
		if !q.Until.IsZero() {
			w.add("m.published <= ?", q.Until.UnixMicro())
		}
	}
	w.parts(t, q)
	return name, w
}

func (f *finder) parts() string {
	switch {
	case !f.query.Bodies:
		return f.store.sql.get("columns_no_parts")
	case f.at.Dead:
		return f.store.sql.get("columns_dead_parts")
	}
	return f.store.sql.get("columns_message_parts")
}
