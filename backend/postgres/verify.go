package postgres

import (
	"context"

	"github.com/redrive/redrive/internal/sqlstore"
)

// ReadQueueNames implements sqlstore.Rows.
func (w *work) ReadQueueNames(ctx context.Context) (names []string, err error) {
	err = w.db.query(ctx, w.sql.Get("queue_names"), scanNames(&names))
	return names, err
}

// Audit implements sqlstore.Rows.
func (w *work) Audit(ctx context.Context, a *sqlstore.Auditor) error {
	o := &a.Orphans
	for _, look := range []struct {
		name string
		scan func(row) error
	}{
		{"ledger", func(r row) error { return r.Scan(a.Counted.Dest()...) }},
		{"scan_waiting", a.ScanWaiting},
		{"scan_dead", a.ScanDead},
		{"scan_orphans", func(r row) error { return r.Scan(&o[0], &o[1], &o[2], &o[3]) }},
	} {
		if err := w.db.query(ctx, w.sql.Get(look.name), look.scan, a.Queue); err != nil {
			return err
		}
	}
	return nil
}
