package mysql

import (
	"context"
	"io"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/internal/sqlstore"
)

// ReadQueueNames implements sqlstore.Rows.
func (w *work) ReadQueueNames(ctx context.Context) (names []string, err error) {
	err = w.db.run(ctx, step{sql: w.sql.Get("queue_names"), scan: scanNames(&names)})
	return names, err
}

// Audit implements sqlstore.Rows.
func (w *work) Audit(ctx context.Context, a *sqlstore.Auditor) error {
	queue := []byte(a.Queue)
	var name string
	steps := []step{
		{sql: w.sql.with("ledger", ":where", " WHERE queue = ?"), args: []any{queue, queue}, scan: scanInto(append([]any{&name}, a.Counted.Dest()...)...)},
		{sql: w.sql.Get("scan_waiting"), args: []any{queue}, scan: a.ScanWaiting},
		{sql: w.sql.Get("scan_dead"), args: []any{queue}, scan: a.ScanDead},
		{sql: w.sql.Get("scan_causes"), args: []any{queue, queue, queue}, scan: a.ScanCause},
		{sql: w.sql.Get("scan_sums"), args: []any{queue, queue}, scan: func(r row) error { return scanSum(r, a) }},
	}
	for i, look := range []string{"scan_twice", "scan_blocked", "scan_forgotten", "scan_members"} {
		steps = append(steps, step{sql: w.sql.Get(look), args: []any{queue}, scan: scanInto(&a.Orphans[i])})
	}
	return w.db.run(ctx, steps...)
}

// scanSum takes in a row of scan_sums.
func scanSum(r row, a *sqlstore.Auditor) error {
	var m sqlstore.Message
	var headers []byte
	err := r.Scan(&m.ID, &m.Kind, &m.Key, &headers, &m.Body, &m.Original, &m.Sum, &m.Reason)
	if err == nil {
		m.Headers = decodeHeaders(headers)
		a.Check(&m)
	}
	return err
}

// Backup implements driver.Store: it is not ours to do.
func (s *Store) Backup(context.Context, io.Writer) error {
	return &redrive.Error{Op: "backup", Err: redrive.ErrUnsupported,
		Hint: "use mysqldump --single-transaction (mariadb-dump) for the tables " + s.sql.prefix + "*, or the server's own backups"}
}
