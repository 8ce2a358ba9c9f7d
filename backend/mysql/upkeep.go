package mysql

import (
	"context"
	"fmt"
	"strings"
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
