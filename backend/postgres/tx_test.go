package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver of database/sql

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/backend/jsoncolumn"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/faulttest"
	"github.com/redrive/redrive/internal/pgtest"
)

// transaction is one of either kind.
type transaction struct {
	publish  func(s *Store, msgs ...redrive.Message) error
	settle   func(s *Store, st driver.Settlement) error
	once     func(s *Store, id string) (bool, error)
	commit   func() error
	rollback func() error
	exec     func(sql string, args ...any) error
}

// eachKind runs a test with transactions of pgx and of database/sql.
func eachKind(t *testing.T, test func(t *testing.T, s *Store, begin func() transaction)) {
	t.Run("pgx", func(t *testing.T) {
		s := open(t)
		conn := dial(t)
		t.Cleanup(func() { _ = conn.Close(context.Background()) })
		test(t, s, func() transaction {
			tx, err := conn.Begin(t.Context())
			noErr(t, err)
			return transaction{
				func(s *Store, msgs ...redrive.Message) error { return s.PublishTx(t.Context(), tx, msgs...) },
				func(s *Store, st driver.Settlement) error { return s.SettleTx(t.Context(), tx, st) },
				func(s *Store, id string) (bool, error) { return s.Once(t.Context(), tx, id) },
				func() error { return tx.Commit(t.Context()) }, func() error { return tx.Rollback(t.Context()) },
				func(sql string, args ...any) error { _, err := tx.Exec(t.Context(), sql, args...); return err }}
		})
	})
	t.Run("database/sql", func(t *testing.T) {
		s := open(t)
		handle, err := sql.Open("pgx", pgtest.Shared(t).URL())
		noErr(t, err)
		t.Cleanup(func() { _ = handle.Close() })
		test(t, s, func() transaction {
			tx, err := handle.BeginTx(t.Context(), nil)
			noErr(t, err)
			return transaction{
				func(s *Store, msgs ...redrive.Message) error { return s.PublishSQL(t.Context(), tx, msgs...) },
				func(s *Store, st driver.Settlement) error { return s.SettleSQL(t.Context(), tx, st) },
				func(s *Store, id string) (bool, error) { return s.OnceSQL(t.Context(), tx, id) },
				tx.Commit, tx.Rollback,
				func(sql string, args ...any) error { _, err := tx.ExecContext(t.Context(), sql, args...); return err }}
		})
	})
}

// claim claims all that is due.
func claim(t testing.TB, s *Store, queue string) []redrive.Delivery {
	t.Helper()
	got, err := s.Claim(t.Context(), driver.ClaimRequest{Queue: queue, Max: 1000, Lease: time.Minute, Instance: "test"})
	noErr(t, err)
	return got
}

// audited checks the ledger of a store.
func TestPublishTxCommitsWithTheCaller(t *testing.T) {
	eachKind(t, func(t *testing.T, s *Store, begin func() transaction) {
		var headers redrive.Headers
		headers.Add(`quo"te`, "\\ \x00\xff {,}")
		msgs := []redrive.Message{
			{Queue: "a", Body: []byte("plain \x00\xff")},
			{Queue: "a", ID: "chosen", Kind: `k"\{}`, Key: "NULL", Headers: headers, Body: []byte("b"), ReplyTo: "answers", ExpiresAt: time.Now().Add(time.Hour)},
			{Queue: "a", ID: "chosen", Body: []byte("other")},
			{Queue: "NO"},
			{},
		}
		msgs[4] = msgs[1] // the same again is no error
		tx := begin()
		noErr(t, tx.publish(s, redrive.Message{Queue: "a", ID: "undone"}))
		noErr(t, tx.rollback())
		tx = begin()
		err := tx.publish(s, msgs...)
		var e *redrive.Error
		if !errors.Is(err, redrive.ErrConflict) || !errors.Is(err, redrive.ErrInvalid) || !errors.As(err, &e) || e.Queue != "a" || e.ID != "chosen" ||
			!strings.Contains(err.Error(), "2 of 5 messages refused: a/chosen: ") {
			t.Errorf("%v", err)
		}
		if msgs[0].ID == "" {
			t.Errorf("no id was made")
		}
		if got := claim(t, s, "a"); len(got) != 0 {
			t.Errorf("%d claimed before the commit", len(got))
		}
		noErr(t, tx.commit())
		got := claim(t, s, "a")
		if len(got) != 2 || got[0].ID != msgs[0].ID || string(got[0].Body) != "plain \x00\xff" {
			t.Fatalf("claimed %+v", got)
		}
		if v, _ := got[1].Headers.Get(`quo"te`); v != "\\ \x00\xff {,}" || got[1].Kind != `k"\{}` || got[1].Key != "NULL" || got[1].ReplyTo != "answers" {
			t.Errorf("claimed %+v", got[1])
		}
		faulttest.Audited(t, s)
	})
}

// Transactions that publish and then go on do not wait for one another: all of them have
// published before the first commits.
func TestPublishTxWaitsForNoOther(t *testing.T) {
	const n = 64
	s := open(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var published, ended sync.WaitGroup
	published.Add(n)
	for i := range n {
		ended.Go(func() {
			conn, err := pgx.Connect(ctx, pgtest.Shared(t).URL())
			if err != nil {
				t.Errorf("connect: %v", err)
				published.Done()
				return
			}
			defer func() { _ = conn.Close(context.Background()) }()
			err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
				err := s.PublishTx(ctx, tx, redrive.Message{Queue: "a"}, redrive.Message{Queue: "a", ID: fmt.Sprint(i), Key: "k"})
				published.Done()
				published.Wait()
				return err
			})
			if err != nil {
				t.Errorf("transaction %d: %v", i, err)
			}
		})
	}
	ended.Wait()
	if got := claim(t, s, "a"); len(got) != 2*n {
		t.Errorf("claimed %d of %d", len(got), 2*n)
	}
	faulttest.Audited(t, s)
}

func TestSettleTxIsOneCommitWithTheEffect(t *testing.T) {
	eachKind(t, func(t *testing.T, s *Store, begin func() transaction) {
		noErr(t, s.Configure(t.Context(), "a", driver.QueueSettings{OrderByKey: true}))
		table := pgx.Identifier{s.sql.schema, "effect"}.Sanitize()
		serve(t, "CREATE TABLE "+table+" (id text)")
		for range 2 {
			noErr(t, driver.FirstError(s.Publish(t.Context(), []redrive.Message{{Queue: "a", Key: "k"}})))
		}
		d := claim(t, s, "a")[0]
		st := driver.Settlement{Receipt: d.Receipt, Outcome: redrive.OutcomeDone, Emit: []redrive.Message{{Queue: "b", ID: "e"}}}

		tx := begin()
		noErr(t, tx.exec("INSERT INTO "+table+" VALUES ($1)", d.ID))
		noErr(t, tx.settle(s, st))
		noErr(t, tx.rollback())
		if n := len(claim(t, s, "b")); n != 0 {
			t.Errorf("%d emitted by what was rolled back", n)
		}

		tx = begin()
		noErr(t, tx.exec("INSERT INTO "+table+" VALUES ($1)", d.ID))
		noErr(t, tx.settle(s, st))
		noErr(t, tx.commit())
		if n := len(claim(t, s, "b")); n != 1 {
			t.Errorf("%d emitted, want 1", n)
		}
		if next := claim(t, s, "a"); len(next) != 1 || next[0].ID == d.ID {
			t.Errorf("the next of the key: %+v", next)
		}

		tx = begin()
		if err := tx.settle(s, st); !errors.Is(err, redrive.ErrLeaseLost) {
			t.Errorf("a second settlement: %v", err)
		}
		noErr(t, tx.rollback())
		faulttest.Audited(t, s)
	})
}

func TestSettleTxOfEveryOutcome(t *testing.T) {
	eachKind(t, func(t *testing.T, s *Store, begin func() transaction) {
		outcomes := []redrive.Outcome{redrive.OutcomeDone, redrive.OutcomeRetry, redrive.OutcomeRelease, redrive.OutcomeDead, redrive.OutcomeRepeat, redrive.OutcomeDrop}
		for range outcomes {
			noErr(t, driver.FirstError(s.Publish(t.Context(), []redrive.Message{{Queue: "a"}})))
		}
		tx := begin()
		for i, d := range claim(t, s, "a") {
			st := driver.Settlement{Receipt: d.Receipt, Outcome: outcomes[i], Reason: redrive.ReasonManual, After: time.Hour,
				Failure: &redrive.Failure{Message: `it "failed" \ {}`, Attempt: 1}}
			noErr(t, tx.settle(s, st))
		}
		noErr(t, tx.commit())
		c, err := s.Counts(t.Context(), "a")
		noErr(t, err)
		if c[0].AllWaiting() != 3 || c[0].AllDead() != 1 || c[0].Ledger.Done != 2 || c[0].Ledger.Dropped != 1 {
			t.Errorf("%+v", c[0])
		}
		dead, err := s.Claim(t.Context(), driver.ClaimRequest{Queue: "a", Dead: true, Max: 1, Lease: time.Minute, Instance: "test"})
		noErr(t, err)
		tx = begin()
		noErr(t, tx.settle(s, driver.Settlement{Receipt: dead[0].Receipt, Outcome: redrive.OutcomeRepeat}))
		noErr(t, tx.commit())
		e, err := s.Get(t.Context(), []redrive.Ref{dead[0].Ref()})
		noErr(t, err)
		if e[0].State != redrive.StateWaiting || e[0].History.First == nil || e[0].History.First.Message != `it "failed" \ {}` {
			t.Errorf("%+v", e[0])
		}
		faulttest.Audited(t, s)
	})
}

func TestOnce(t *testing.T) {
	eachKind(t, func(t *testing.T, s *Store, begin func() transaction) {
		for i, want := range []bool{true, true, false} {
			tx := begin()
			first, err := tx.once(s, "sms/1/0")
			noErr(t, err)
			if first != want {
				t.Errorf("call %d: first %t, want %t", i, first, want)
			}
			if i == 0 {
				noErr(t, tx.rollback())
			} else {
				noErr(t, tx.commit())
			}
		}
	})
}

func TestNoTransactionIsRefused(t *testing.T) {
	m, st := redrive.Message{Queue: "a"}, driver.Settlement{Outcome: redrive.OutcomeDone}
	_, once := Once(t.Context(), nil, "id")
	_, onceSQL := OnceSQL(t.Context(), nil, "id")
	for i, err := range []error{PublishTx(t.Context(), nil, m), PublishSQL(t.Context(), nil, m), SettleTx(t.Context(), nil, st), SettleSQL(t.Context(), nil, st), once, onceSQL} {
		if !errors.Is(err, redrive.ErrInvalid) {
			t.Errorf("%d: %v", i, err)
		}
	}
}

func TestJSONColumn(t *testing.T) {
	type order struct{ Amount int }
	conn := dial(t)
	defer func() { _ = conn.Close(context.Background()) }()
	for _, want := range []jsoncolumn.JSON[order]{jsoncolumn.NewJSON(order{7}), jsoncolumn.NewJSON(order{}), {}} {
		var got jsoncolumn.JSON[order]
		noErr(t, conn.QueryRow(t.Context(), "SELECT $1::jsonb", want).Scan(&got))
		if got != want {
			t.Errorf("%+v came back as %+v", want, got)
		}
	}
}

func TestJSONView(t *testing.T) {
	s := open(t)
	noErr(t, driver.FirstError(s.Publish(t.Context(), []redrive.Message{
		{Queue: "a", ID: "json", Body: []byte(`{"amount": 7}`)}, {Queue: "a", ID: "text", Body: []byte("{")}, {Queue: "a", ID: "nul", Body: []byte(`"\u0000"`)},
	})))
	var id string
	view := pgx.Identifier{s.sql.schema, "waiting_json"}.Sanitize()
	noErr(t, s.pool.QueryRow(t.Context(), "SELECT id FROM "+view+" WHERE (body ->> 'amount')::int = 7").Scan(&id))
	if id != "json" {
		t.Errorf("found %q", id)
	}
}
