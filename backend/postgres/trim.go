package postgres

import (
	"context"
	"io"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/sqlstore"
)

// Bounds of trimming.
const (
	keepInbox = 30 * 24 * time.Hour // how long Once remembers
)

// Trim implements driver.Store.
func (s *Store) Trim(ctx context.Context, r driver.Retention, limit int) (driver.Trimmed, error) {
	if err := s.ready(ctx); err != nil {
		return driver.Trimmed{}, err
	}
	return sqlstore.Trim(ctx, &r, int64(limit), s)
}

// TrimExpired implements sqlstore.Trimmer: it removes what expired by itself.
func (s *Store) TrimExpired(ctx context.Context, all *driver.Trimmed, limit int64) error {
	if limit <= 0 {
		return nil
	}
	return fault("trim", s.inTx(ctx, "trim", func(tx db) (err error) {
		if all.Remembered, err = tx.exec(ctx, s.sql.get("trim_remembered"), limit); err != nil {
			return err
		}
		if all.Records, err = tx.exec(ctx, s.sql.get("trim_records"), limit-all.Remembered); err != nil {
			return err
		}
		_, err = tx.exec(ctx, s.sql.get("trim_inbox"), limit, int64(keepInbox/time.Microsecond))
		return err
	}))
}

// TrimDead implements sqlstore.Trimmer: it removes the dead letters of a queue that are too old or too many.
func (s *Store) TrimDead(ctx context.Context, queue string, r *driver.Retention, limit, excess int64) (n int64, err error) {
	err = s.inTx(ctx, "trim_dead", func(tx db) error {
		n = 0
		w := newWork(tx, s.sql)
		var refs []redrive.Ref
		err := tx.query(ctx, s.sql.get("trim_dead"), func(row row) error {
			ref := redrive.Ref{Queue: queue}
			err := row.Scan(&ref.ID)
			refs = append(refs, ref)
			return err
		}, queue, limit, sqlstore.Micros(r.DeadAge), excess)
		if err != nil || len(refs) == 0 {
			return err
		}
		n, err = w.Trim(ctx, queue, refs, r.Archived)
		return err
	})
	return n, fault("trim", err)
}

// Backup implements driver.Store: it is not ours to do.
func (s *Store) Backup(context.Context, io.Writer) error {
	return &redrive.Error{Op: "backup", Err: redrive.ErrUnsupported, Hint: "use pg_dump --schema=" + s.sql.schema + ", or the server's own base backups"}
}
