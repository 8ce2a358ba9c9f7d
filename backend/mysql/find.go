package mysql

import (
	"context"
	"strings"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/internal/sqlstore"
)

// Search implements sqlstore.Server.
func (d dialect) Search(ctx context.Context, page *sqlstore.Finder) (end *sqlstore.PageCursor, err error) {
	f := finder{page, d.Store}
	if end, err = f.bound(ctx); err != nil {
		return nil, err
	}
	name, where := f.statement()
	if end != nil {
		where.upTo(f.At.Dead, *end)
	}
	st := step{sql: d.sql.with(name, ":where", where.sql(), ":parts", f.parts()), args: append(where.args, f.Limit()), scan: func(r row) error {
		m, err := scanMessage(r)
		if err != nil {
			return err
		}
		return f.Add(m)
	}}
	st.sql = strings.ReplaceAll(st.sql, ":now", d.sql.clock)
	return end, d.read(ctx, "find", f.Reset, st)
}

// CountText implements sqlstore.Server: there is no index of texts.
func (dialect) CountText(context.Context, *redrive.Query) (n int64, ok bool, err error) {
	return 0, false, nil
}

// finder makes the statements that fill a page.
type finder struct {
	*sqlstore.Finder
	store *Store
}

// bound returns where the look must end, if more entries lie before the end than may be
// looked at. What an index serves needs none: everything that is looked at matches.
func (f *finder) bound(ctx context.Context) (end *sqlstore.PageCursor, err error) {
	q := f.Query
	plain := redrive.Query{Queue: q.Queue, After: q.After, Limit: q.Limit, Bodies: q.Bodies}
	switch {
	case f.At.Dead:
		plain.State, plain.Since, plain.Until = q.State, q.Since, q.Until
		switch deadSpan(q) {
		case "find_plan":
			plain.Plan = q.Plan
		case "find_edited":
			plain.Edited = true
		case "find_cause":
			plain.Reason, plain.Signature = q.Reason, q.Signature
		}
	case q.Key != "":
		return nil, nil
	}
	if *q == plain {
		return nil, nil
	}
	name, where := f.span()
	st := step{sql: f.store.sql.with(name+"_place", ":where", where.sql()), args: append(where.args, redrive.Examined-1), scan: func(r row) error {
		var died *int64
		end = new(sqlstore.PageCursor)
		err := r.Scan(&end.ID, &died)
		end.Died = timeOf(died)
		return err
	}}
	err = f.store.read(ctx, "find_bound", func() { end = nil }, st)
	return end, err
}

// span is the part of the index that is looked at, from f.at on.
func (f *finder) span() (name string, w conditions) {
	q := f.Query
	if !f.At.Dead {
		name = "find_waiting"
		w.add("m.queue = ?", []byte(f.At.Queue))
		w.add("m.id > ?", []byte(f.At.ID))
		if q.Key != "" {
			name = "find_key"
			w.add("m.msg_key = ?", []byte(q.Key))
		}
		return name, w
	}
	w.add("d.queue = ?", []byte(f.At.Queue))
	switch name = deadSpan(q); name {
	case "find_plan":
		w.add("d.plan = ?", []byte(q.Plan))
	case "find_edited":
		w.add("d.edited = 1")
	case "find_cause":
		w.add("d.reason = ?", int(q.Reason))
		w.add("d.signature = ?", []byte(q.Signature))
	}
	if !f.At.Died.IsZero() {
		died := micros(f.At.Died)
		w.add("d.died >= ?", died)
		w.add("(d.died > ? OR d.id > ?)", died, []byte(f.At.ID))
	}
	w.died(q)
	return name, w
}

// deadSpan is the query that looks at the fewest dead letters.
func deadSpan(q *redrive.Query) string {
	switch {
	case q.Plan != "":
		return "find_plan"
	case q.Edited:
		return "find_edited"
	case q.Reason != 0 && q.Signature != "":
		return "find_cause"
	}
	return "find_dead"
}

// statement is the query of the phase that f.at is in.
func (f *finder) statement() (name string, w conditions) {
	name, w = f.span()
	q := f.Query
	t := "m."
	if f.At.Dead {
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
		if q.Retrying {
			w.add("m.lane = 1 AND (m.class < 4 OR m.class = 5 AND m.due <= :now)")
		}
		if q.Signature != "" {
			w.add("JSON_UNQUOTE(JSON_EXTRACT(CONVERT(COALESCE(m.last_failure, m.first_failure) USING utf8mb4), '$.signature')) = ?", q.Signature)
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
	case !f.Query.Bodies:
		return f.store.sql.Get("columns_no_parts")
	case f.At.Dead:
		return f.store.sql.Get("columns_dead_parts")
	}
	return f.store.sql.Get("columns_message_parts")
}
