package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/sqlstore"
)

// Verify implements driver.Store. It reads within one snapshot, which keeps dead rows
// from being removed meanwhile.
func (s *Store) Verify(ctx context.Context, names ...string) ([]driver.Audit, error) {
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	var audits []driver.Audit
	err := s.inTxWith(ctx, "verify", pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx db) error {
		audits = nil
		list := names
		if len(list) == 0 {
			err := tx.query(ctx, s.sql.get("queue_names"), func(r row) error {
				var name string
				err := r.Scan(&name)
				list = append(list, name)
				return err
			})
			if err != nil {
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
	if err != nil {
		return nil, readFault("verify", err)
	}
	return audits, nil
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
	var booked sqlstore.Books
	queue := a.audit.Queue
	if err := a.db.query(ctx, a.sql.get("books"), func(r row) error { return r.Scan(booked.Dest()...) }, queue); err != nil {
		return err
	}
	a.audit.Ledger = booked.Ledger()
	scanned, err := a.scan(ctx)
	if err != nil {
		return err
	}
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

// scan counts the rows.
func (a *auditor) scan(ctx context.Context) (n sqlstore.Books, err error) {
	err = a.db.query(ctx, a.sql.get("scan_waiting"), func(r row) error {
		var lane, rows, size int64
		var off *int64
		if err := r.Scan(&lane, &rows, &size, &off); err != nil {
			return err
		}
		if lane < 0 || lane >= int64(driver.Lanes) {
			a.problem("%d messages in lane %d, which is none", rows, lane)
			return nil
		}
		if off != nil && *off != 0 {
			a.problem("messages of lane %d are off by %d bytes from their sizes", lane, *off)
		}
		n[lane] += rows
		n[sqlstore.BookBytes] += size
		return nil
	}, a.audit.Queue)
	if err != nil {
		return n, err
	}
	err = a.db.query(ctx, a.sql.get("scan_dead"), func(r row) error {
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
	}, a.audit.Queue)
	return n, err
}

// orphans looks for rows that belong to nothing.
func (a *auditor) orphans(ctx context.Context) error {
	var counts [4]int64
	err := a.db.query(ctx, a.sql.get("scan_orphans"), func(r row) error {
		return r.Scan(&counts[0], &counts[1], &counts[2], &counts[3])
	}, a.audit.Queue)
	for i, what := range []string{"messages that wait and are dead", "messages blocked by nobody", "chosen ids that are not remembered",
		"keys whose members are miscounted"} {
		if counts[i] != 0 {
			a.problem("%d %s", counts[i], what)
		}
	}
	return err
}
