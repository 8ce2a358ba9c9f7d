package mysql

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/redrive/redrive"
)

// Folding the books is a job for one process at a time: it holds a record that expires.
const (
	foldEvery = time.Second
	foldLease = 10 * time.Second
	foldRows  = 5000
	foldSpace = "_store"
	foldKey   = "fold"
)

// upkeep folds differences into the books while this process holds the record.
func (s *Store) upkeep(ctx context.Context) {
	var held foldHold
	for ctx.Err() == nil {
		sleep(ctx, foldEvery)
		if ctx.Err() != nil {
			return
		}
		if !s.holdFold(ctx, &held) {
			continue
		}
		for {
			n, err := s.fold(ctx)
			if err != nil || n < foldRows || ctx.Err() != nil {
				break
			}
		}
	}
}

// foldHold is this process's hold on the record.
type foldHold struct {
	version int64     // 0: another has it
	renewed time.Time // by our own clock, which measures only how long ago that was
}

// holdFold takes or keeps the record, and reports whether this process has it.
func (s *Store) holdFold(ctx context.Context, h *foldHold) bool {
	if h.version != 0 && time.Since(h.renewed) < foldLease/2 { // nobody else takes it before
		return true
	}
	renewed := time.Now()
	_, err := s.Apply(ctx, redrive.Batch{Relaxed: true, Records: []redrive.RecordWrite{
		{Space: foldSpace, Key: foldKey, Value: []byte(s.self), Version: h.version, Expires: foldLease},
	}})
	h.version = 0
	if err != nil {
		return false
	}
	rec, err := s.GetRecord(ctx, foldSpace, foldKey)
	if err != nil || string(rec.Value) != s.self {
		return false
	}
	h.version, h.renewed = rec.Version, renewed
	return true
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
