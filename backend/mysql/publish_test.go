package mysql

import (
	"bytes"
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/redrive/redrive"
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

// checkBatch fails unless all messages wait as they were published, in their order.
func checkBatch(t *testing.T, s *Store, msgs []redrive.Message) {
	t.Helper()
	got, err := s.Claim(t.Context(), redrive.ClaimRequest{Queue: "a", Max: len(msgs) + 1, Lease: redrive.DefaultLease})
	noErr(t, err)
	if len(got) != len(msgs) {
		t.Fatalf("%d messages, want %d", len(got), len(msgs))
	}
	for i := range got {
		m, want := &got[i].Message, &msgs[i]
		if m.ID != want.ID || m.Kind != want.Kind || !bytes.Equal(m.Body, want.Body) || !slices.EqualFunc(m.Headers, want.Headers, func(a, b redrive.Header) bool { return a.Name == b.Name && bytes.Equal(a.Value, b.Value) }) {
			t.Errorf("message %d: %v, want %v", i, m, want)
		}
	}
	audits, err := s.Verify(t.Context())
	noErr(t, err)
	for i := range audits {
		if a := &audits[i]; a.Imbalance() != 0 || len(a.Problems) > 0 {
			t.Errorf("the books of %s: %+v", a.Queue, *a)
		}
	}
}

// A large batch goes by the prepared INSERT, as often as it fits, and the rest as text.
func TestLargeBatchesAreStoredAsTheyAre(t *testing.T) {
	for _, n := range []int{bulkRows, 2*bulkRows + 17} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			s := open(t)
			msgs := bulkOf(n)
			noErr(t, redrive.FirstError(s.Publish(t.Context(), msgs)))
			checkBatch(t, s, msgs)
		})
	}
}

// A server without room for prepared statements is given the text.
func TestLargeBatchesWithoutPreparedStatements(t *testing.T) {
	own := private(t, map[string]string{"max_prepared_stmt_count": "0"})
	s, err := Open(t.Context(), own.URL(database), WithTimeout(patience))
	noErr(t, err)
	t.Cleanup(func() { _ = s.Close() })
	msgs := bulkOf(bulkRows)
	noErr(t, redrive.FirstError(s.Publish(t.Context(), msgs)))
	checkBatch(t, s, msgs)
}

// lostStatement is one that the server does not know.
type lostStatement struct {
	driver.Stmt
	conn driver.ExecerContext
}

func (l lostStatement) ExecContext(ctx context.Context, _ []driver.NamedValue) (driver.Result, error) {
	return l.conn.ExecContext(ctx, "EXECUTE nothing", nil)
}

// A statement that was lost on the way is given as text, and prepared anew.
func TestLargeBatchesAfterAStatementWasLost(t *testing.T) {
	s := open(t)
	s.pool.SetMaxOpenConns(1)
	text := s.sql.get("publish_bulk")
	withSession(t, s, func(c *session) { c.prepared[text] = lostStatement{conn: c} })
	msgs := bulkOf(3 * bulkRows)
	noErr(t, redrive.FirstError(s.Publish(t.Context(), msgs)))
	checkBatch(t, s, msgs)
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
