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
		{"scan_causes", a.ScanCause},
		{"scan_sums", func(r row) error { return scanSum(r, a) }},
		{"scan_orphans", func(r row) error { return r.Scan(&o[0], &o[1], &o[2], &o[3]) }},
	} {
		if err := w.db.query(ctx, w.sql.Get(look.name), look.scan, a.Queue); err != nil {
			return err
		}
	}
	return nil
}

// scanSum takes in a row of scan_sums.
func scanSum(r row, a *sqlstore.Auditor) error {
	var m sqlstore.Message
	var headers []byte
	var sum *int32
	err := r.Scan(&m.ID, &m.Kind, &m.Key, &headers, &m.Body, &m.Original, &sum, &m.Reason)
	if err == nil {
		m.Headers, m.Sum = decodeHeaders(headers), sumOf(sum)
		a.Check(&m)
	}
	return err
}
