package mysql

import (
	"context"
	"fmt"
	"io"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/sqlstore"
)

// Verify implements driver.Store. It reads within one snapshot, which keeps old
// versions of rows from being removed meanwhile.
func (s *Store) Verify(ctx context.Context, names ...string) ([]driver.Audit, error) {
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	var audits []driver.Audit
	err := s.inSnapshot(ctx, "verify", func(tx db) error {
		audits = nil
		list := names
		if len(list) == 0 {
			if err := tx.run(ctx, step{sql: s.sql.get("queue_names"), scan: scanNames(&list)}); err != nil {
				return err
			}
		}
		for _, name := range list {
			a := auditor{db: tx, sql: s.sql, audit: driver.Audit{Queue: name}}
			if err := a.run(ctx); err != nil {
				return err
			}
			audits = append(audits, a.audit)
		}
		return nil
	})
	return audits, fault("verify", err)
}

// auditor compares the books of one queue with its rows.
type auditor struct {
	db    db
	sql   *statements
	audit driver.Audit
}

func (a *auditor) problem(format string, args ...any) {
	a.audit.Problems = append(a.audit.Problems, fmt.Sprintf(format, args...))
}

func (a *auditor) run(ctx context.Context) error {
	var booked, scanned sqlstore.Books
	queue := []byte(a.audit.Queue)
	var name string
	err := a.db.run(ctx,
		step{sql: a.sql.with("books", ":where", " WHERE queue = ?"), args: []any{queue, queue}, scan: func(r row) error {
			return r.Scan(append([]any{&name}, booked.Dest()...)...)
		}},
		step{sql: a.sql.get("scan_waiting"), args: []any{queue}, scan: func(r row) error { return a.scanWaiting(r, &scanned) }},
		step{sql: a.sql.get("scan_dead"), args: []any{queue}, scan: func(r row) error { return a.scanDead(r, &scanned) }})
	if err != nil {
		return err
	}
	a.audit.Ledger = booked.Ledger()
	a.audit.Waiting, a.audit.Dead = scanned.Waiting(), scanned.Dead()
	for b, name := range bookNames {
		moves := sqlstore.Book(b) >= sqlstore.BookPublished && sqlstore.Book(b) <= sqlstore.BookMovedOut
		if !moves && booked[b] != scanned[b] {
			a.problem("%s: %d counted, %d found", name, booked[b], scanned[b])
		}
	}
	if n := a.audit.Imbalance(); n != 0 {
		a.problem("%d more entered than left, wait or are dead", n)
	}
	return a.orphans(ctx)
}

func (a *auditor) scanWaiting(r row, n *sqlstore.Books) error {
	var lane, rows, size, off int64
	if err := r.Scan(&lane, &rows, &size, &off); err != nil {
		return err
	}
	if lane < 0 || lane >= int64(driver.Lanes) {
		a.problem("%d messages in lane %d, which is none", rows, lane)
		return nil
	}
	if off != 0 {
		a.problem("messages of lane %d are off by %d bytes from their sizes", lane, off)
	}
	n[lane] += rows
	n[sqlstore.BookBytes] += size
	return nil
}

func (a *auditor) scanDead(r row, n *sqlstore.Books) error {
	var reason, rows int64
	if err := r.Scan(&reason, &rows); err != nil {
		return err
	}
	if reason < 1 || reason > int64(redrive.ReasonManual) {
		a.problem("%d dead letters for reason %d, which is none", rows, reason)
		return nil
	}
	n[sqlstore.DeadBook(redrive.Reason(reason))] = rows
	return nil
}

// orphans looks for rows that belong to nothing.
func (a *auditor) orphans(ctx context.Context) error {
	looks := []struct{ name, what string }{
		{"scan_twice", "messages that wait and are dead"}, {"scan_blocked", "messages blocked by nobody"},
		{"scan_forgotten", "chosen ids that are not remembered"}, {"scan_members", "keys whose members are miscounted"},
	}
	found := make([]int64, len(looks))
	steps := make([]step, len(looks))
	for i, l := range looks {
		steps[i] = step{sql: a.sql.get(l.name), args: []any{[]byte(a.audit.Queue)}, scan: scanInto(&found[i])}
	}
	if err := a.db.run(ctx, steps...); err != nil {
		return err
	}
	for i, l := range looks {
		if found[i] != 0 {
			a.problem("%d %s", found[i], l.what)
		}
	}
	return nil
}

// Backup implements driver.Store: it is not ours to do.
func (s *Store) Backup(context.Context, io.Writer) error {
	return &redrive.Error{Op: "backup", Err: redrive.ErrUnsupported,
		Hint: "use mysqldump --single-transaction (mariadb-dump) for the tables " + s.sql.prefix + "*, or the server's own backups"}
}
