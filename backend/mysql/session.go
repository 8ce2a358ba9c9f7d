package mysql

import (
	"context"
	"database/sql/driver"
	"errors"
)

// driverConn is what the driver's connections can do.
type driverConn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.NamedValueChecker
	driver.Pinger
	driver.QueryerContext
	driver.SessionResetter
	driver.Validator
}

// session is a connection with the statements that were prepared on it. They end with
// it.
type session struct {
	driverConn
	prepared map[string]driver.Stmt
}

// errUnprepared says that a statement cannot be run as a prepared one; nothing was done.
var errUnprepared = errors.New("the statement is not prepared")

// execPrepared runs a statement, which it prepares the first time. The server may have
// no room for one more, and what stands between us may have lost it.
func (s *session) execPrepared(ctx context.Context, text string, values []driver.NamedValue) error {
	st := s.prepared[text]
	if st == nil {
		var err error
		if st, err = s.PrepareContext(ctx, text); err != nil {
			if code(err) == codePreparedMost {
				return errUnprepared
			}
			return err
		}
		s.prepared[text] = st
	}
	_, err := st.(driver.StmtExecContext).ExecContext(ctx, values)
	if code(err) == codePreparedLost {
		delete(s.prepared, text)
		return errUnprepared
	}
	return err
}
