package postgres

import (
	"context"
	"io"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/sqlstore"
)

// TrimExpired implements sqlstore.Rows.
func (w *work) TrimExpired(ctx context.Context, all *driver.Trimmed, limit int64, inbox time.Duration) (err error) {
	if all.Remembered, err = w.db.exec(ctx, w.sql.Get("trim_remembered"), limit); err != nil {
		return err
	}
	if all.Records, err = w.db.exec(ctx, w.sql.Get("trim_records"), limit-all.Remembered); err != nil {
		return err
	}
	if err = w.trimTexts(ctx, limit); err != nil {
		return err
	}
	_, err = w.db.exec(ctx, w.sql.Get("trim_inbox"), limit, int64(inbox/time.Microsecond))
	return err
}

// trimTexts removes texts that no dead letter has. They are locked first, so that the second statement
// sees every dead letter that got one of them.
func (w *work) trimTexts(ctx context.Context, limit int64) error {
	var queues []string
	var hashes []int64
	err := w.db.query(ctx, w.sql.Get("lock_texts"), func(r row) error {
		var k sqlstore.TextKey
		err := r.Scan(&k.Queue, &k.Hash)
		queues, hashes = append(queues, k.Queue), append(hashes, k.Hash)
		return err
	}, limit)
	if err != nil || len(queues) == 0 {
		return err
	}
	_, err = w.db.exec(ctx, w.sql.Get("trim_texts"), queues, hashes)
	return err
}

// Trimmable implements sqlstore.Rows.
func (w *work) Trimmable(ctx context.Context, queue string, age time.Duration, limit, excess int64) (refs []redrive.Ref, err error) {
	err = w.db.query(ctx, w.sql.Get("trim_dead"), func(r row) error {
		ref := redrive.Ref{Queue: queue}
		err := r.Scan(&ref.ID)
		refs = append(refs, ref)
		return err
	}, queue, limit, sqlstore.Micros(age), excess)
	return refs, err
}

// Backup implements driver.Store: it is not ours to do.
func (s *Store) Backup(context.Context, io.Writer) error {
	return &redrive.Error{Op: "backup", Err: redrive.ErrUnsupported, Hint: "use pg_dump --schema=" + s.sql.schema + ", or the server's own base backups"}
}
