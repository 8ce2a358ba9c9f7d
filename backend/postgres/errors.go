package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/sqlstore"
)

// SQLSTATEs that are looked at.
const (
	codeSerialization = "40001"
	codeDeadlock      = "40P01"
	codeUnique        = "23505"
	codeDiskFull      = "53100"
	codeLockTimeout   = "55P03"
	codeReadOnly      = "25006" // a standby, before or after a fail-over
	codeNoStatement   = "26000" // a pooler has changed the connection below us
	codeResultChanged = "0A000" // a cached plan whose result type changed
)

// code returns the SQLSTATE of an error, or "".
func code(err error) string {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.Code
	}
	return ""
}

// transient reports an error after which the whole statement or transaction has been
// rolled back and may be repeated at once.
func transient(err error) bool {
	switch code(err) {
	case codeSerialization, codeDeadlock, codeUnique, codeLockTimeout, codeNoStatement, codeResultChanged:
		return true
	}
	return pgconn.SafeToRetry(err)
}

// dataError reports an error that the values of a statement caused, not the server's
// state: a group that fails with it is split.
func dataError(err error) bool {
	c := code(err)
	return len(c) == 5 && (c[:2] == "22" || c[:2] == "23" || c[:2] == "54")
}

// fault makes an error of what a statement that changes something ended with. Whether
// it was carried out is unknown if the connection broke before the answer.
func fault(op string, err error) error {
	var known *redrive.Error
	if err == nil || errors.As(err, &known) {
		return err
	}
	e := &redrive.Error{Op: op, Err: err}
	var pg *pgconn.PgError
	switch {
	case errors.Is(err, redrive.ErrClosed):
		return err
	case errors.As(err, &pg):
		switch {
		case pg.Code == codeDiskFull:
			e.Err = fmt.Errorf("%w: %w", redrive.ErrFull, err)
			e.Hint = "free some room on the database's disk"
		case pg.Code == codeReadOnly, nothingSent(err) && ending(pg):
			e.Err = fmt.Errorf("%w: %w", redrive.ErrUnavailable, err)
		case nothingSent(err):
		case ending(pg):
			e.Err = fmt.Errorf("%w: %w", redrive.ErrUnknown, err)
		case pg.Code == "42P01" || pg.Code == "3F000":
			e.Hint = "run `redrive migrate`"
		case pg.Code == "42501":
			e.Hint = "grant the database user its rights on the schema"
		}
	case nothingSent(err):
		e.Err = driver.Unavailable(err)
	default:
		e.Err = fmt.Errorf("%w: %w", redrive.ErrUnknown, err)
	}
	return e
}

// ending reports an answer with which the server ends the connection.
func ending(pg *pgconn.PgError) bool {
	return pg.Severity == "FATAL" || pg.Severity == "PANIC" || pg.Code[:2] == "08"
}

// nothingSent reports an error after which the server cannot have changed anything.
func nothingSent(err error) bool {
	var acquire *sqlstore.AcquireError
	var undone *sqlstore.UndoneError
	return errors.As(err, &acquire) || errors.As(err, &undone) || pgconn.SafeToRetry(err) || errors.Is(err, pgx.ErrTxCommitRollback)
}

// readFault makes an error of what a statement ended with that changes nothing.
func readFault(op string, err error) error {
	var pg *pgconn.PgError
	if err == nil || errors.Is(err, redrive.ErrClosed) {
		return err
	}
	if errors.As(err, &pg) {
		return fault(op, &sqlstore.UndoneError{Err: err})
	}
	return &redrive.Error{Op: op, Err: driver.Unavailable(err)}
}

// again carries out a function until it does not fail for a passing reason.
func again(ctx context.Context, f func() error) error { return sqlstore.Again(ctx, transient, f) }
