package mysql

import (
	"context"
	"fmt"
	"strings"

	"github.com/redrive/redrive/internal/sqlstore"
)

// foldRows is how many differences one transaction folds.
const foldRows = 5000

// upkeep folds differences into the books.
func (s *Store) upkeep(ctx context.Context) {
	sqlstore.Fold(ctx, s, s.self, func(ctx context.Context) bool {
		n, err := s.fold(ctx)
		return err == nil && n == foldRows
	})
}

// fold adds differences to the books, and returns how many rows it took. Rows of
// transactions that are not committed are passed over, and found the next time.
func (s *Store) fold(ctx context.Context) (n int, err error) {
	ctx, cancel := s.detach(ctx)
	defer cancel()
	err = s.inTx(ctx, "fold", func(tx db) error {
		var ids []int64
		err := tx.run(ctx, step{sql: s.sql.get("fold_pick"), args: []any{foldRows}, scan: func(r row) error {
			var id int64
			err := r.Scan(&id)
			ids = append(ids, id)
			return err
		}})
		if n = len(ids); err != nil || n == 0 {
			return err
		}
		runs := runsOf("d.id", ids)
		return tx.run(ctx, step{sql: s.sql.with("fold", ":runs", runs)}, step{sql: s.sql.with("fold_drop", ":seqs", numbers(ids))})
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
