package mysql

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/redrive/redrive/internal/sqlstore"
)

// foldRows is how many differences one transaction folds.
const foldRows = 5000

// FoldLedger implements sqlstore.Server. Rows of transactions that are not committed are
// passed over, and found the next time.
func (d dialect) FoldLedger(ctx context.Context) (more bool, err error) {
	ctx, cancel := d.base.Detach(ctx)
	defer cancel()
	n := 0
	err = d.inTx(ctx, "fold", func(tx db) error {
		var ids []int64
		err := tx.run(ctx, step{sql: d.sql.Get("fold_pick"), args: []any{foldRows}, scan: func(r row) error {
			var id int64
			err := r.Scan(&id)
			ids = append(ids, id)
			return err
		}})
		if n = len(ids); err != nil || n == 0 {
			return err
		}
		runs := runsOf("d.id", ids)
		return tx.run(ctx, step{sql: d.sql.with("fold", ":runs", runs)}, step{sql: d.sql.with("fold_drop", ":seqs", numbers(ids))})
	})
	return n == foldRows, err
}

// aheadTogether is how many classes are looked at together.
const aheadTogether = 100

// Ahead implements sqlstore.Server.
func (d dialect) Ahead(ctx context.Context) ([]sqlstore.Part, error) {
	queues, err := d.QueueNames(ctx)
	if err != nil {
		return nil, err
	}
	var all, parts []sqlstore.Part
	for _, queue := range queues {
		for class := range sqlstore.ClassBlocked {
			all = append(all, sqlstore.Part{Queue: queue, Class: class})
		}
		all = append(all, sqlstore.Part{Queue: queue, Class: sqlstore.ClassDied})
	}
	for some := range slices.Chunk(all, aheadTogether) {
		found := make([]bool, len(some))
		steps := make([]step, len(some))
		for i, p := range some {
			steps[i] = step{sql: d.sql.Get("ahead"), args: []any{[]byte(p.Queue), p.Class, sqlstore.AheadMargin.Microseconds(), sqlstore.AheadLooked}, scan: scanInto(&found[i])}
			if p.Class == sqlstore.ClassDied {
				steps[i].sql, steps[i].args = d.sql.Get("ahead_dead"), []any{[]byte(p.Queue), sqlstore.AheadMargin.Microseconds(), sqlstore.AheadLooked}
			}
		}
		if err := d.read(ctx, "ahead", nil, steps...); err != nil {
			return parts, err
		}
		for i := range some {
			if found[i] {
				parts = append(parts, some[i])
			}
		}
	}
	return parts, nil
}

// Pull implements sqlstore.Server.
func (d dialect) Pull(ctx context.Context, p sqlstore.Part, limit int) (n int64, err error) {
	if p.Class == sqlstore.ClassDied {
		return d.pullDead(ctx, p.Queue, limit)
	}
	err = d.inTx(ctx, "pull", func(tx db) error {
		var seqs []int64
		err := tx.run(ctx, step{sql: d.sql.Get("pull_pick"), args: []any{[]byte(p.Queue), p.Class, sqlstore.AheadMargin.Microseconds(), limit}, scan: func(r row) error {
			var seq int64
			err := r.Scan(&seq)
			seqs = append(seqs, seq)
			return err
		}})
		if n = int64(len(seqs)); err != nil || n == 0 {
			return err
		}
		return tx.run(ctx, step{sql: d.sql.with("pull", ":seqs", numbers(seqs)), args: []any{n}})
	})
	return n, err
}

// pullDead is Pull for dead letters.
func (d dialect) pullDead(ctx context.Context, queue string, limit int) (n int64, err error) {
	err = d.inTx(ctx, "pull_dead", func(tx db) error {
		var ids []any
		err := tx.run(ctx, step{sql: d.sql.Get("pull_dead_pick"), args: []any{[]byte(queue), sqlstore.AheadMargin.Microseconds(), limit}, scan: func(r row) error {
			var id []byte
			err := r.Scan(&id)
			ids = append(ids, id)
			return err
		}})
		if n = int64(len(ids)); err != nil || n == 0 {
			return err
		}
		args := slices.Concat([]any{n}, ids, []any{[]byte(queue)}, ids)
		return tx.run(ctx, step{sql: d.sql.with("pull_dead", ":ids", places(len(ids))), args: args})
	})
	return n, err
}

// runsOf is the condition that a column is one of some numbers in rising order, which
// are mostly adjacent.
func runsOf(column string, ids []int64) string {
	var b strings.Builder
	for i := 0; i < len(ids); {
		j := i
		for j+1 < len(ids) && ids[j+1] == ids[j]+1 {
			j++
		}
		if i > 0 {
			b.WriteString(" OR ")
		}
		fmt.Fprintf(&b, "%s BETWEEN %d AND %d", column, ids[i], ids[j])
		i = j + 1
	}
	return b.String()
}
