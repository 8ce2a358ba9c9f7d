package mysql

import (
	"context"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"testing"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/faulttest"
	"github.com/redrive/redrive/internal/mariadbtest"
)

// bulkOf makes messages whose bodies hold every byte, and some with what takes the
// ordinary way.
func bulkOf(n int) []redrive.Message {
	msgs := make([]redrive.Message, n)
	for i := range msgs {
		body := make([]byte, 256)
		for j := range body {
			body[j] = byte(i + j)
		}
		msgs[i] = redrive.Message{Queue: "a", Kind: fmt.Sprint("kind ", i, " ü'\\"), Body: body}
		if i%3 == 0 {
			msgs[i].Headers = redrive.Headers{{Name: "h", Value: body[:7]}}
		}
	}
	msgs[n-1].Body = nil
	return msgs
}

// A large batch goes by the prepared INSERT, as often as it fits, and the rest as text.
func TestLargeBatchesAreStoredAsTheyAre(t *testing.T) {
	for _, n := range []int{bulkRows, 2*bulkRows + 17} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			s := open(t)
			msgs := bulkOf(n)
			noErr(t, driver.FirstError(s.Publish(t.Context(), msgs)))
			faulttest.Stored(t, s, "a", msgs)
		})
	}
}

// A server without room for prepared statements is given the text.
func TestLargeBatchesWithoutPreparedStatements(t *testing.T) {
	own := mariadbtest.Start(t, map[string]string{"max_prepared_stmt_count": "0"})
	s, err := Open(t.Context(), own.URL(mariadbtest.Database), WithTimeout(patience))
	noErr(t, err)
	t.Cleanup(func() { _ = s.Close() })
	msgs := bulkOf(bulkRows)
	noErr(t, driver.FirstError(s.Publish(t.Context(), msgs)))
	faulttest.Stored(t, s, "a", msgs)
}

// lostStatement is one that the server does not know.
type lostStatement struct {
	sqldriver.Stmt
	conn sqldriver.ExecerContext
}

func (l lostStatement) ExecContext(ctx context.Context, _ []sqldriver.NamedValue) (sqldriver.Result, error) {
	return l.conn.ExecContext(ctx, "EXECUTE nothing", nil)
}

// A statement that was lost on the way is given as text, and prepared anew.
func TestLargeBatchesAfterAStatementWasLost(t *testing.T) {
	s := open(t)
	s.pool.SetMaxOpenConns(1)
	text := s.sql.Get("publish_bulk")
	withSession(t, s, func(c *session) { c.prepared[text] = lostStatement{conn: c} })
	msgs := bulkOf(3 * bulkRows)
	noErr(t, driver.FirstError(s.Publish(t.Context(), msgs)))
	faulttest.Stored(t, s, "a", msgs)
	withSession(t, s, func(c *session) {
		if _, lost := c.prepared[text].(lostStatement); lost || c.prepared[text] == nil {
			t.Error("it was not prepared anew")
		}
	})
}

func withSession(t *testing.T, s *Store, f func(*session)) {
	t.Helper()
	c, err := s.pool.Conn(t.Context())
	noErr(t, err)
	noErr(t, errors.Join(c.Raw(func(raw any) error { f(raw.(*session)); return nil }), c.Close()))
}
