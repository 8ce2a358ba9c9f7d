package mysql

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/internal/sqlstore"
)

// scanCause reads what is added to a cause, after other columns.
func scanCause(r row, before ...any) (c sqlstore.CauseCount, err error) {
	var reason, width int
	err = r.Scan(append(before, &c.Queue, &reason, &c.Signature, &width, &c.Start, &c.Dead, &c.Deaths)...)
	c.Reason, c.Width = redrive.Reason(reason), time.Duration(width)*time.Second //nolint:gosec // a reason
	return c, err
}

// causeArgs name a cause, bucketArgs one of its buckets.
func causeArgs(c *sqlstore.Cause) []any {
	return []any{[]byte(c.Queue), int(c.Reason), cut(c.Signature)}
}

func bucketArgs(c *sqlstore.CauseCount) []any {
	return append(causeArgs(&c.Cause), int64(c.Width/time.Second), c.Start)
}

// countSteps are INSERTs of bounded size.
func countSteps(sql *statements, name string, list []sqlstore.CauseCount, columns func(*sqlstore.CauseCount) []any) []step {
	var steps []step
	for part := range slices.Chunk(list, insertMost) {
		var args []any
		for i := range part {
			args = append(args, columns(&part[i])...)
		}
		row := "(" + places(len(args)/len(part)) + "),"
		steps = append(steps, step{sql: sql.with(name, ":rows", strings.TrimSuffix(strings.Repeat(row, len(part)), ",")), args: args})
	}
	return steps
}

func (w *work) writeCauses(ctx context.Context) error {
	return w.db.run(ctx, countSteps(w.sql, "cause", w.TakeCauses(), func(c *sqlstore.CauseCount) []any {
		return append(bucketArgs(c), c.Dead, c.Deaths)
	})...)
}

// DrainCauses implements sqlstore.Rows. Rows of transactions that are not committed are
// passed over, and found the next time.
func (w *work) DrainCauses(ctx context.Context, limit int) (counts []sqlstore.CauseCount, rows int, err error) {
	var ids []int64
	at := make(map[sqlstore.CauseBucket]int)
	err = w.db.run(ctx, step{sql: w.sql.Get("cause_pick"), args: []any{limit}, scan: func(r row) error {
		var id int64
		c, err := scanCause(r, &id)
		i, ok := at[c.CauseBucket]
		if !ok {
			i = len(counts)
			at[c.CauseBucket] = i
			counts = append(counts, sqlstore.CauseCount{CauseBucket: c.CauseBucket})
		}
		counts[i].Dead += c.Dead
		counts[i].Deaths += c.Deaths
		ids = append(ids, id)
		return err
	}})
	var steps []step
	for _, list := range chunks(ids) {
		steps = append(steps, step{sql: w.sql.with("cause_drop", ":seqs", numbers(list))})
	}
	if err == nil {
		err = w.db.run(ctx, steps...)
	}
	return counts, len(ids), err
}

// seriesTogether is how many causes are looked for in one statement.
const seriesTogether = 100

// Series implements sqlstore.Rows.
func (w *work) Series(ctx context.Context, causes []sqlstore.Cause) (has map[sqlstore.Cause]bool, number map[string]int, err error) {
	has, number = make(map[sqlstore.Cause]bool), make(map[string]int)
	var steps []step
	var queues []string
	for part := range slices.Chunk(causes, seriesTogether) {
		var args []any
		for i := range part {
			args = append(args, causeArgs(&part[i])...)
			queues = append(queues, part[i].Queue)
		}
		each := strings.TrimSuffix(strings.Repeat("queue = ? AND reason = ? AND signature = ? OR ", len(part)), " OR ")
		steps = append(steps, step{sql: w.sql.with("series", ":rows", each), args: args, scan: func(r row) error {
			var c sqlstore.Cause
			var reason int
			err := r.Scan(&c.Queue, &reason, &c.Signature)
			c.Reason = redrive.Reason(reason) //nolint:gosec // a reason
			has[c] = true
			return err
		}})
	}
	if err := w.db.run(ctx, steps...); err != nil || len(has) == len(causes) {
		return has, number, err
	}
	l := idList{ids: slices.Compact(queues)}
	err = w.db.run(ctx, step{sql: w.sql.with("series_number", ":ids", places(len(l.ids))), args: l.args()[1:], scan: func(r row) error {
		var queue string
		var n int
		err := r.Scan(&queue, &n)
		number[queue] = n
		return err
	}})
	return has, number, err
}

// AddCauses implements sqlstore.Rows.
func (w *work) AddCauses(ctx context.Context, list []sqlstore.CauseCount) error {
	return w.db.run(ctx, countSteps(w.sql, "add_causes", list, func(c *sqlstore.CauseCount) []any { return append(causeArgs(&c.Cause), c.Dead, c.Series) })...)
}

// AddBuckets implements sqlstore.Rows.
func (w *work) AddBuckets(ctx context.Context, list []sqlstore.CauseCount) error {
	return w.db.run(ctx, countSteps(w.sql, "add_buckets", list, func(c *sqlstore.CauseCount) []any { return append(bucketArgs(c), c.Deaths) })...)
}

// DrainBuckets implements sqlstore.Rows.
func (w *work) DrainBuckets(ctx context.Context, width time.Duration, until time.Time, limit int) ([]sqlstore.CauseCount, error) {
	var list []sqlstore.CauseCount
	var drop []step
	err := w.db.run(ctx, step{sql: w.sql.Get("pick_buckets"), args: []any{int64(width / time.Second), until.UnixMicro(), limit}, scan: func(r row) error {
		c, err := scanCause(r)
		list = append(list, c)
		drop = append(drop, step{sql: w.sql.Get("drop_bucket"), args: bucketArgs(&c)})
		return err
	}})
	if err != nil {
		return nil, err
	}
	return list, w.db.run(ctx, drop...)
}

// TrimCauses implements sqlstore.Rows.
func (w *work) TrimCauses(ctx context.Context) error {
	return w.db.run(ctx, step{sql: w.sql.Get("end_series")}, step{sql: w.sql.Get("trim_causes")})
}

// which are the conditions of queue, reason and signature.
func which(q *redrive.Query) (w conditions) {
	if q.Queue != "" {
		w.add("d.queue = ?", []byte(q.Queue))
	}
	w.cause(q)
	return w
}

// CountDead implements sqlstore.Server.
func (d dialect) CountDead(ctx context.Context, q *redrive.Query) (n, late int64, err error) {
	w := which(q)
	err = d.inSnapshot(ctx, "count_dead", func(tx db) error {
		var queues []string
		n, late = 0, 0
		err := tx.run(ctx, step{sql: d.sql.with("count_dead", ":which", w.sql()), args: append(slices.Clone(w.args), w.args...), scan: func(r row) error {
			var queue string
			var in int64
			err := r.Scan(&queue, &in)
			n += in
			queues = append(queues, queue)
			return err
		}})
		if err != nil || q.Until.IsZero() {
			return err
		}
		var steps []step
		index := "dead_died"
		if q.Reason != 0 && q.Signature != "" {
			index = "dead_cause"
		}
		for _, queue := range queues {
			of := *q
			of.Queue = queue
			w := which(&of)
			steps = append(steps, step{sql: d.sql.with("count_late", ":which", w.sql(), ":index", index), args: append(w.args, q.Until.UnixMicro()), scan: func(r row) error {
				var in int64
				err := r.Scan(&in)
				late += in
				return err
			}})
		}
		return tx.run(ctx, steps...)
	})
	return n, late, fault("count", err)
}

// ReadBuckets implements sqlstore.Server.
func (d dialect) ReadBuckets(ctx context.Context, q *redrive.Query, reset func(), found func(*sqlstore.CauseCount)) error {
	w := which(q)
	since := int64(0)
	if !q.Since.IsZero() {
		since = micros(q.Since)
	}
	args := append(append(slices.Clone(w.args), w.args...), since)
	return d.read(ctx, "deaths", reset, step{sql: d.sql.with("read_buckets", ":which", w.sql()), args: args, scan: func(r row) error {
		c, err := scanCause(r)
		found(&c)
		return err
	}})
}
