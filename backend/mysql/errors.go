package mysql

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"

	"github.com/go-sql-driver/mysql"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/internal/sqlstore"
)

// Numbers of the server's errors that are looked at.
const (
	codeChanged      = 1020 // MariaDB from 11.6 on: a row has changed since the snapshot
	codeDiskFull     = 1021
	codeHandler      = 1030 // with the operating system's number in its text
	codeShutdown     = 1053
	codeDuplicate    = 1062
	codeOther        = 1105 // which a parameter larger than max_allowed_packet has
	codeTableFull    = 1114
	codeTableDenied  = 1142
	codeNoTable      = 1146
	codePacket       = 1153
	codeCommit       = 1180
	codeLockTimeout  = 1205
	codeDeadlock     = 1213
	codeReadOnly     = 1290
	codePreparedLost = 1243 // no such prepared statement
	codeInterrupted  = 1317
	codeRedefined    = 1412
	codePreparedMost = 1461 // max_prepared_stmt_count
	codeReprepare    = 1615
	codeKilled       = 1927
	codeTimeoutMaria = 1969 // max_statement_time
	codeTimeoutMySQL = 3024 // max_execution_time
)

// code returns the number of a server's error, or 0.
func code(err error) uint16 {
	var e *mysql.MySQLError
	if errors.As(err, &e) {
		return e.Number
	}
	return 0
}

// transient reports an error after which everything has been rolled back and may be
// repeated at once.
func transient(err error) bool {
	switch code(err) {
	case codeDeadlock, codeLockTimeout, codeDuplicate, codeChanged, codeRedefined, codeReprepare:
		return true
	case 0:
		var undone *sqlstore.UndoneError
		return broken(err) && (errors.As(err, &undone) || errors.Is(err, driver.ErrBadConn))
	case codeShutdown, codeKilled:
		var undone *sqlstore.UndoneError
		return errors.As(err, &undone)
	}
	return false
}

// broken reports that the connection has died.
func broken(err error) bool {
	var n *net.OpError
	return errors.Is(err, driver.ErrBadConn) || errors.Is(err, mysql.ErrInvalidConn) || errors.Is(err, io.EOF) ||
		errors.Is(err, io.ErrUnexpectedEOF) || errors.As(err, &n)
}

// serverSaidNo reports an answer of the server by which even a commit that was sent with
// other statements has not been carried out.
func serverSaidNo(err error) bool {
	if errors.Is(err, driver.ErrBadConn) {
		return true // the driver says so only of what it has not sent
	}
	switch code(err) {
	case 0, codeShutdown, codeCommit, codeInterrupted, codeKilled, codeTimeoutMaria, codeTimeoutMySQL:
		return false
	}
	return true
}

// dataError reports an error that the values of a statement caused, not the server's
// state: a group that fails with it is split.
func dataError(err error) bool {
	var e *mysql.MySQLError
	if !errors.As(err, &e) {
		return tooLarge(err)
	}
	class := string(e.SQLState[:2])
	return class == "22" || class == "23" || tooLarge(err)
}

// tooLarge reports that the server takes no packet as large as a message needs.
func tooLarge(err error) bool {
	var e *mysql.MySQLError
	if !errors.As(err, &e) {
		return errors.Is(err, mysql.ErrPktTooLarge)
	}
	return e.Number == codePacket || e.Number == codeOther && strings.Contains(e.Message, "max_allowed_packet")
}

// fault makes an error of what a transaction ended with. Whether it was carried out is
// unknown if the connection broke after the commit was sent and before the answer.
func fault(op string, err error) error {
	var known *redrive.Error
	if err == nil || errors.As(err, &known) || errors.Is(err, redrive.ErrClosed) {
		return err
	}
	e := &redrive.Error{Op: op, Err: err}
	var acquire *sqlstore.AcquireError
	var undone *sqlstore.UndoneError
	switch n := code(err); {
	case n == codeDiskFull || n == codeTableFull || n == codeHandler:
		e.Err = fmt.Errorf("%w: %w", redrive.ErrFull, err)
		e.Hint = "free some room on the database's disk"
	case tooLarge(err):
		e.Err = fmt.Errorf("%w message: exceeds the server's size limit: %w", redrive.ErrInvalid, err)
		e.Hint = "raise max_allowed_packet on the server, up to 64M for the largest bodies"
	case n == codeNoTable:
		e.Hint = "run `redrive migrate`"
	case n == codeTableDenied:
		e.Hint = "grant the database user its rights on the tables"
	case n == codeReadOnly:
		e.Err = fmt.Errorf("%w: %w", redrive.ErrUnavailable, err)
		e.Hint = "the server takes no writes: name the primary"
	case errors.As(err, &acquire):
	case errors.As(err, &undone):
		if n == codeShutdown || n == codeKilled || broken(err) {
			e.Err = fmt.Errorf("%w: %w", redrive.ErrUnavailable, err)
		}
	default:
		e.Err = fmt.Errorf("%w: %w", redrive.ErrUnknown, err)
	}
	return e
}

// again carries out a function until it does not fail for a passing reason.
func again(ctx context.Context, f func() error) error { return sqlstore.Again(ctx, transient, f) }
