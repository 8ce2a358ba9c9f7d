package mysql

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redrive/redrive"
)

// pageMark is where the next page begins: a queue, whether its dead letters are
// reached, and the last entry seen.
type pageMark struct {
	queue string
	dead  bool
	died  time.Time
	id    string
}

func (m pageMark) String() string {
	phase := "w"
	if m.dead {
		phase = "d"
	}
	return strings.Join([]string{m.queue, phase, m.died.Format(time.RFC3339Nano), m.id}, "/")
}

func parseMark(text string) (m pageMark, err error) {
	if text == "" {
		return m, nil
	}
	parts := strings.Split(text, "/")
	if len(parts) == 4 && (parts[1] == "w" || parts[1] == "d") && redrive.CheckQueue(parts[0]) == nil && (parts[3] == "" || redrive.CheckID(parts[3]) == nil) {
		if m.died, err = time.Parse(time.RFC3339Nano, parts[2]); err == nil {
			m.queue, m.dead, m.id = parts[0], parts[1] == "d", parts[3]
			return m, nil
		}
	}
	return m, &redrive.Error{Op: "find", Err: fmt.Errorf("%w page mark %q", redrive.ErrInvalid, text), Hint: "use the Next of the page before"}
}

// Find implements redrive.Store. Waiting messages come in the order of their ids, dead
// letters in that of their death, queue by queue.
func (s *Store) Find(ctx context.Context, q redrive.Query) (redrive.Page, error) {
	page := redrive.Page{Complete: true}
	if err := s.ready(ctx); err != nil {
		return page, err
	}
	at, err := parseMark(q.After)
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
	at    pageMark
	now   time.Time
	page  *redrive.Page
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
		if queue < f.at.queue {
			continue
		}
		if queue > f.at.queue {
			f.at = pageMark{queue: queue}
		}
		for _, dead := range []bool{false, true} {
			if dead && !f.at.dead {
				f.at = pageMark{queue: queue, dead: true}
			}
			if dead != f.at.dead || !f.wants(dead) {
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
	var last pageMark
	name, where := f.statement()
	if reached {
		where.upTo(f.at.dead, bound)
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
		last = pageMark{queue: m.Queue, dead: m.dead, died: m.died, id: m.ID}
		e, err := m.entry(f.now, f.query.Bodies)
		if err != nil {
			return err
		}
		f.page.Entries = append(f.page.Entries, *e)
		return nil
	}}
	st.sql = strings.ReplaceAll(st.sql, ":now", f.store.sql.clock)
	had := len(f.page.Entries)
	reset := func() {
		f.page.Entries, room, full, last = f.page.Entries[:had], f.query.PageLimit()-had, false, pageMark{}
	}
	if err := f.store.read(ctx, "find", reset, st); err != nil {
		return err
	}
	switch {
	case full:
		if last.id != "" {
			f.at = last
		}
		f.page.Next = f.at.String()
		return errFull
	case reached:
		f.at.id, f.at.died = bound.id, bound.died
		f.page.Next, f.page.Complete = f.at.String(), false
		return errFull
	}
	return nil
}

// bound returns where the look must end, if more entries lie before the end than may be
// looked at. What an index serves needs none: everything that is looked at matches.
func (f *finder) bound(ctx context.Context) (at pageMark, reached bool, err error) {
	q := f.query
	plain := redrive.Query{Queue: q.Queue, After: q.After, Limit: q.Limit, Bodies: q.Bodies}
	switch {
	case f.at.dead:
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
		err := r.Scan(&at.id, &died)
		at.died = timeOf(died)
		return err
	}}
	err = f.store.read(ctx, "find_bound", func() { reached = false }, st)
	return at, reached, err
}

// span is the part of the index that is looked at, from f.at on.
func (f *finder) span() (name string, w conditions) {
	q := f.query
	if !f.at.dead {
		name = "find_waiting"
		w.add("m.queue = ?", []byte(f.at.queue))
		w.add("m.id > ?", []byte(f.at.id))
		if q.Key != "" {
			name = "find_key"
			w.add("m.msg_key = ?", []byte(q.Key))
		}
		return name, w
	}
	name = "find_dead"
	w.add("d.queue = ?", []byte(f.at.queue))
	if q.Reason != 0 && q.Signature != "" {
		name = "find_cause"
		w.add("d.reason = ?", int(q.Reason))
		w.add("d.signature = ?", []byte(q.Signature))
	}
	if !f.at.died.IsZero() {
		died := micros(f.at.died)
		w.add("d.died >= ?", died)
		w.add("(d.died > ? OR d.id > ?)", died, []byte(f.at.id))
	}
	w.died(q)
	return name, w
}

// statement is the query of the phase that f.at is in.
func (f *finder) statement() (name string, w conditions) {
	name, w = f.span()
	q := f.query
	t := "m."
	if f.at.dead {
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
	case f.at.dead:
		return f.store.sql.get("columns_dead_parts")
	}
	return f.store.sql.get("columns_message_parts")
}
