package mysql

import (
	"context"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/sqlstore"
)

// trimSpare is how many leased dead letters are passed over at most.
const trimSpare = 1000

// TrimExpired implements sqlstore.Rows.
func (w *work) TrimExpired(ctx context.Context, all *driver.Trimmed, limit int64, inbox time.Duration) error {
	if err := w.db.run(ctx, step{sql: w.sql.Get("trim_remembered"), args: []any{limit}, affected: &all.Remembered}); err != nil {
		return err
	}
	return w.db.run(ctx, step{sql: w.sql.Get("trim_records"), args: []any{limit - all.Remembered}, affected: &all.Records},
		step{sql: w.sql.Get("trim_inbox"), args: []any{int64(inbox / time.Microsecond), limit}})
}

// Trimmable implements sqlstore.Rows: the oldest come first.
func (w *work) Trimmable(ctx context.Context, queue string, age time.Duration, limit, excess int64) (refs []redrive.Ref, err error) {
	place := int64(0)
	err = w.db.run(ctx, step{sql: w.sql.Get("trim_dead"), args: []any{sqlstore.Micros(age), []byte(queue), limit + trimSpare}, scan: func(r row) error {
		ref := redrive.Ref{Queue: queue}
		var old, held bool
		err := r.Scan(&ref.ID, &old, &held)
		place++
		if !held && (place <= excess || age > 0 && old) && int64(len(refs)) < limit {
			refs = append(refs, ref)
		}
		return err
	}})
	return refs, err
}
