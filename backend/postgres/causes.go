package postgres

import (
	"context"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/sqlstore"
)

// Causes implements driver.Store.
func (s *Store) Causes(ctx context.Context, q redrive.Query) (causes []driver.Cause, complete bool, err error) {
	at, paged := driver.ParseCauseCursor(q.After)
	q.After = ""
	if q.Text != "" {
		return driver.CausesFound(ctx, s.Find, q)
	}
	limit := q.PageLimit()
	name, args := "counted_causes", causeArgs(&q, limit)
	switch {
	case sqlstore.ByCause(&q) && paged:
		name, args = "next_causes", append(args, at.Queue, int64(at.Reason), at.Signature)
	case !sqlstore.ByCause(&q):
		header, value := headerFilter(q.Header)
		name = "causes"
		args = []any{orNullText(q.Queue), redrive.Examined + 1, limit, orNullInt(int(q.Reason)), orNullText(q.Signature), orNullText(q.Kind), orNullText(q.Key),
			orNullText(q.Plan), orNullText(q.NotPlan), sinceOrNull(q.Since), untilOrNull(q.Until), orNullText(q.Body), header, value, q.Edited}
	}
	var looked, found int64
	err = s.read(ctx, name, func() { causes = nil }, func(r row) error {
		var g driver.Cause
		var reason int
		var first, last *time.Time
		var failure []byte
		if err := r.Scan(&g.Queue, &reason, &g.Signature, &g.Count, &first, &last, &g.Example.ID, &failure, &looked, &found); err != nil {
			return err
		}
		g.Reason, g.First, g.Last, g.Example.Queue = redrive.Reason(reason), timeOf(first), timeOf(last), g.Queue //nolint:gosec // a reason
		g.Show(driver.DecodeFailure(failure))
		causes = append(causes, g)
		return nil
	}, args...)
	return causes, looked <= redrive.Examined && found <= int64(limit), err
}

// causeArgs are the arguments of statements about counters of causes.
func causeArgs(q *redrive.Query, more ...any) []any {
	return append([]any{orNullText(q.Queue), orNullInt(int(q.Reason)), orNullText(q.Signature)}, more...)
}

// CountDead implements sqlstore.Server.
func (d dialect) CountDead(ctx context.Context, q *redrive.Query) (n, late int64, err error) {
	name := "count_dead"
	if q.Reason != 0 && q.Signature != "" {
		name = "count_cause"
	}
	err = d.read(ctx, name, nil, func(r row) error { return r.Scan(&n, &late) }, causeArgs(q, untilOrNull(q.Until))...)
	return n, late, err
}

// ReadBuckets implements sqlstore.Server.
func (d dialect) ReadBuckets(ctx context.Context, q *redrive.Query, reset func(), found func(*sqlstore.CauseCount)) error {
	return d.read(ctx, "read_buckets", reset, func(r row) error {
		c, _, err := scanCause(r)
		found(&c)
		return err
	}, causeArgs(q, sinceOrNull(q.Since))...)
}

// scanCause reads what is added to a cause, and how many rows that is the sum of.
func scanCause(r row) (c sqlstore.CauseCount, rows int, err error) {
	var reason, width int
	var start time.Time
	err = r.Scan(&c.Queue, &reason, &c.Signature, &width, &start, &c.Dead, &c.Deaths, &rows)
	c.Reason, c.Width, c.Start = redrive.Reason(reason), time.Duration(width)*time.Second, start.UnixMicro() //nolint:gosec // a reason
	return c, rows, err
}

// part makes arrays of the parts of counts.
func part[T, C any](list []C, of func(*C) T) []T {
	c := make([]T, len(list))
	for i := range list {
		c[i] = of(&list[i])
	}
	return c
}

// causeColumns are what names causes, bucketColumns what names their buckets.
func causeColumns(list []sqlstore.CauseCount) []any {
	return []any{
		part(list, func(c *sqlstore.CauseCount) string { return c.Queue }),
		part(list, func(c *sqlstore.CauseCount) int64 { return int64(c.Reason) }),
		part(list, func(c *sqlstore.CauseCount) string { return c.Signature }),
	}
}

func bucketColumns(list []sqlstore.CauseCount) []any {
	return append(causeColumns(list),
		part(list, func(c *sqlstore.CauseCount) int64 { return int64(c.Width / time.Second) }),
		part(list, func(c *sqlstore.CauseCount) *time.Time { at := time.UnixMicro(c.Start).UTC(); return &at }))
}

func deadOf(c *sqlstore.CauseCount) int64   { return c.Dead }
func deathsOf(c *sqlstore.CauseCount) int64 { return c.Deaths }

func (w *work) writeCauses(ctx context.Context) error {
	list := w.TakeCauses()
	if len(list) == 0 {
		return nil
	}
	_, err := w.db.exec(ctx, w.sql.Get("cause"), append(bucketColumns(list), part(list, deadOf), part(list, deathsOf))...)
	return err
}

// DrainCauses implements sqlstore.Rows.
func (w *work) DrainCauses(ctx context.Context, limit int) (counts []sqlstore.CauseCount, rows int, err error) {
	return w.drain(ctx, "drain_causes", limit)
}

// DrainBuckets implements sqlstore.Rows.
func (w *work) DrainBuckets(ctx context.Context, width time.Duration, until time.Time, limit int) ([]sqlstore.CauseCount, error) {
	counts, _, err := w.drain(ctx, "drain_buckets", int64(width/time.Second), until, limit)
	return counts, err
}

func (w *work) drain(ctx context.Context, name string, args ...any) (counts []sqlstore.CauseCount, rows int, err error) {
	err = w.db.query(ctx, w.sql.Get(name), func(r row) error {
		c, n, err := scanCause(r)
		counts = append(counts, c)
		rows += n
		return err
	}, args...)
	return counts, rows, err
}

// Series implements sqlstore.Rows.
func (w *work) Series(ctx context.Context, causes []sqlstore.Cause) (has map[sqlstore.Cause]bool, number map[string]int, err error) {
	has, number = make(map[sqlstore.Cause]bool), make(map[string]int)
	if len(causes) == 0 {
		return has, number, nil
	}
	queues := part(causes, func(c *sqlstore.Cause) string { return c.Queue })
	err = w.db.query(ctx, w.sql.Get("series"), func(r row) error {
		var c sqlstore.Cause
		var reason int
		err := r.Scan(&c.Queue, &reason, &c.Signature)
		c.Reason = redrive.Reason(reason) //nolint:gosec // a reason
		has[c] = true
		return err
	}, queues, part(causes, func(c *sqlstore.Cause) int64 { return int64(c.Reason) }), part(causes, func(c *sqlstore.Cause) string { return c.Signature }))
	if err != nil || len(has) == len(causes) {
		return has, number, err
	}
	err = w.db.query(ctx, w.sql.Get("series_number"), func(r row) error {
		var queue string
		var n int
		err := r.Scan(&queue, &n)
		number[queue] = n
		return err
	}, queues)
	return has, number, err
}

// AddCauses implements sqlstore.Rows.
func (w *work) AddCauses(ctx context.Context, list []sqlstore.CauseCount) error {
	_, err := w.db.exec(ctx, w.sql.Get("add_causes"), append(causeColumns(list), part(list, deadOf), part(list, func(c *sqlstore.CauseCount) bool { return c.Series }))...)
	return err
}

// AddBuckets implements sqlstore.Rows.
func (w *work) AddBuckets(ctx context.Context, list []sqlstore.CauseCount) error {
	if len(list) == 0 {
		return nil
	}
	_, err := w.db.exec(ctx, w.sql.Get("add_buckets"), append(bucketColumns(list), part(list, deathsOf))...)
	return err
}

// TrimCauses implements sqlstore.Rows.
func (w *work) TrimCauses(ctx context.Context) error {
	if _, err := w.db.exec(ctx, w.sql.Get("end_series")); err != nil {
		return err
	}
	_, err := w.db.exec(ctx, w.sql.Get("trim_causes"))
	return err
}
