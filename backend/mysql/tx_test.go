package mysql

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/faulttest"
)

// eachHandle runs a test with handles that users may have: as the driver makes them,
// at its default isolation, and with unusual settings.
func eachHandle(t *testing.T, test func(t *testing.T, s *Store, db *sql.DB)) {
	for name, params := range map[string][]string{
		"default":     nil,
		"interpolate": {"interpolateParams=true", "parseTime=true", "loc=Local", "clientFoundRows=true"},
		"odd session": {"time_zone=%27-09%3A30%27", "sql_mode=%27ANSI_QUOTES%2CNO_BACKSLASH_ESCAPES%2CNO_AUTO_VALUE_ON_ZERO%27", "collation=latin1_swedish_ci"},
	} {
		t.Run(name, func(t *testing.T) {
			test(t, open(t), dial(t, params...))
		})
	}
}

func begin(t testing.TB, db *sql.DB) *sql.Tx {
	t.Helper()
	tx, err := db.BeginTx(t.Context(), nil)
	noErr(t, err)
	return tx
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
	eachHandle(t, func(t *testing.T, s *Store, db *sql.DB) {
		var headers redrive.Headers
		headers.Add(`quo"te'`, "\\ \x00\xff {,}';")
		msgs := []redrive.Message{
			{Queue: "a", Body: []byte("plain \x00\xff'\\")},
			{Queue: "a", ID: "chosen", Kind: `k"\{}'`, Key: "NULL", Headers: headers, Body: []byte("b"), ReplyTo: "answers", ExpiresAt: time.Now().Add(time.Hour)},
			{Queue: "a", ID: "chosen", Body: []byte("other")},
			{Queue: "NO"},
			{},
		}
		msgs[4] = msgs[1] // the same again is no error
		tx := begin(t, db)
		noErr(t, s.PublishTx(t.Context(), tx, redrive.Message{Queue: "a", ID: "undone"}))
		noErr(t, tx.Rollback())
		tx = begin(t, db)
		err := s.PublishTx(t.Context(), tx, msgs...)
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
		noErr(t, tx.Commit())
		got := claim(t, s, "a")
		if len(got) != 2 || got[0].ID != msgs[0].ID || string(got[0].Body) != "plain \x00\xff'\\" {
			t.Fatalf("claimed %+v", got)
		}
		if v, _ := got[1].Headers.Get(`quo"te'`); v != "\\ \x00\xff {,}';" || got[1].Kind != `k"\{}'` || got[1].Key != "NULL" || got[1].ReplyTo != "answers" {
			t.Errorf("claimed %+v", got[1])
		}
		faulttest.Audited(t, s)
	})
}

func TestSettleTxIsOneCommitWithTheEffect(t *testing.T) {
	eachHandle(t, func(t *testing.T, s *Store, db *sql.DB) {
		noErr(t, s.Configure(t.Context(), "a", driver.QueueSettings{OrderByKey: true}))
		table := s.sql.prefix + "effect"
		serve(t, "CREATE TABLE "+table+" (id VARBINARY(64) PRIMARY KEY)")
		for range 2 {
			noErr(t, driver.FirstError(s.Publish(t.Context(), []redrive.Message{{Queue: "a", Key: "k"}})))
		}
		d := claim(t, s, "a")[0]
		st := driver.Settlement{Receipt: d.Receipt, Outcome: redrive.OutcomeDone, Emit: []redrive.Message{{Queue: "b", ID: "e"}}}
		effect := func(tx *sql.Tx) {
			t.Helper()
			_, err := tx.ExecContext(t.Context(), "INSERT INTO "+table+" VALUES (?)", d.ID)
			noErr(t, err)
			noErr(t, s.SettleTx(t.Context(), tx, st))
		}
		tx := begin(t, db)
		effect(tx)
		noErr(t, tx.Rollback())
		if n := len(claim(t, s, "b")); n != 0 {
			t.Errorf("%d emitted by what was rolled back", n)
		}
		tx = begin(t, db)
		effect(tx)
		noErr(t, tx.Commit())
		if n := len(claim(t, s, "b")); n != 1 {
			t.Errorf("%d emitted, want 1", n)
		}
		if next := claim(t, s, "a"); len(next) != 1 || next[0].ID == d.ID {
			t.Errorf("the next of the key: %+v", next)
		}
		tx = begin(t, db)
		if err := s.SettleTx(t.Context(), tx, st); !errors.Is(err, redrive.ErrLeaseLost) {
			t.Errorf("a second settlement: %v", err)
		}
		noErr(t, tx.Rollback())
		faulttest.Audited(t, s)
	})
}

// A transaction whose snapshot is older than the claim settles it all the same.
func TestSettleTxOnAnOldSnapshot(t *testing.T) {
	s := open(t)
	noErr(t, s.Configure(t.Context(), "a", driver.QueueSettings{OrderByKey: true}))
	tx := begin(t, dial(t))
	var n int
	noErr(t, tx.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM "+s.sql.prefix+"message").Scan(&n))
	for range 2 {
		noErr(t, driver.FirstError(s.Publish(t.Context(), []redrive.Message{{Queue: "a", Key: "k"}})))
	}
	d := claim(t, s, "a")[0]
	noErr(t, s.PublishTx(t.Context(), tx, redrive.Message{Queue: "a", ID: "later", Key: "k"}))
	noErr(t, s.SettleTx(t.Context(), tx, driver.Settlement{Receipt: d.Receipt, Outcome: redrive.OutcomeDone}))
	noErr(t, tx.Commit())
	if next := claim(t, s, "a"); len(next) != 1 || next[0].ID == "later" {
		t.Errorf("the next of the key: %+v", next)
	}
	faulttest.Audited(t, s)
}

func TestSettleTxOfEveryOutcome(t *testing.T) {
	eachHandle(t, func(t *testing.T, s *Store, db *sql.DB) {
		outcomes := []redrive.Outcome{redrive.OutcomeDone, redrive.OutcomeRetry, redrive.OutcomeRelease, redrive.OutcomeDead, redrive.OutcomeRepeat, redrive.OutcomeDrop}
		for range outcomes {
			noErr(t, driver.FirstError(s.Publish(t.Context(), []redrive.Message{{Queue: "a"}})))
		}
		tx := begin(t, db)
		for i, d := range claim(t, s, "a") {
			st := driver.Settlement{Receipt: d.Receipt, Outcome: outcomes[i], Reason: redrive.ReasonManual, After: time.Hour,
				Failure: &redrive.Failure{Message: `it "failed" \ {}'`, Attempt: 1}}
			noErr(t, s.SettleTx(t.Context(), tx, st))
		}
		noErr(t, tx.Commit())
		c, err := s.Counts(t.Context(), "a")
		noErr(t, err)
		if c[0].AllWaiting() != 3 || c[0].AllDead() != 1 || c[0].Ledger.Done != 2 || c[0].Ledger.Dropped != 1 {
			t.Errorf("%+v", c[0])
		}
		dead, err := s.Claim(t.Context(), driver.ClaimRequest{Queue: "a", Dead: true, Max: 1, Lease: time.Minute, Instance: "test"})
		noErr(t, err)
		tx = begin(t, db)
		noErr(t, s.SettleTx(t.Context(), tx, driver.Settlement{Receipt: dead[0].Receipt, Outcome: redrive.OutcomeRepeat}))
		noErr(t, tx.Commit())
		e, err := s.Get(t.Context(), []redrive.Ref{dead[0].Ref()})
		noErr(t, err)
		if e[0].State != redrive.StateWaiting || e[0].History.First == nil || e[0].History.First.Message != `it "failed" \ {}'` {
			t.Errorf("%+v", e[0])
		}
		faulttest.Audited(t, s)
	})
}

// Transactions that publish do not wait for one another: all hold theirs open at once.
func TestPublishTxDoesNotWaitForOthers(t *testing.T) {
	const n = 16
	s := open(t)
	db := dial(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var ready, all sync.WaitGroup
	ready.Add(n)
	for i := range n {
		all.Go(func() {
			tx, err := db.BeginTx(ctx, nil)
			if err == nil {
				m := redrive.Message{Queue: "a", Body: []byte("b")}
				if i%2 == 0 {
					m.ID, m.Key = driver.DeriveID(t.Name(), time.Duration(i).String()), "k"
				}
				err = s.PublishTx(ctx, tx, m)
			}
			ready.Done()
			ready.Wait()
			if err == nil {
				err = tx.Commit()
			}
			if err != nil {
				t.Errorf("transaction %d: %v", i, err)
			}
		})
	}
	all.Wait()
	if got := claim(t, s, "a"); len(got) != n {
		t.Errorf("%d messages, want %d", len(got), n)
	}
}

func TestOnce(t *testing.T) {
	eachHandle(t, func(t *testing.T, s *Store, db *sql.DB) {
		for i, want := range []bool{true, true, false} {
			tx := begin(t, db)
			first, err := s.Once(t.Context(), tx, "sms/1/0")
			noErr(t, err)
			if first != want {
				t.Errorf("call %d: first %t, want %t", i, first, want)
			}
			if i == 0 {
				noErr(t, tx.Rollback())
			} else {
				noErr(t, tx.Commit())
			}
		}
	})
}

func TestNoTransactionIsRefused(t *testing.T) {
	if err := PublishTx(t.Context(), nil, redrive.Message{Queue: "a"}); !errors.Is(err, redrive.ErrInvalid) {
		t.Errorf("%v", err)
	}
	if err := SettleTx(t.Context(), nil, driver.Settlement{Outcome: redrive.OutcomeDone}); !errors.Is(err, redrive.ErrInvalid) {
		t.Errorf("%v", err)
	}
	if _, err := Once(t.Context(), nil, "id"); !errors.Is(err, redrive.ErrInvalid) {
		t.Errorf("%v", err)
	}
}

func TestJSONViews(t *testing.T) {
	s := open(t)
	noErr(t, driver.FirstError(s.Publish(t.Context(), []redrive.Message{
		{Queue: "a", ID: "json", Body: []byte(`{"amount": 7, "name": "ü"}`)}, {Queue: "a", ID: "text", Body: []byte("{")}, {Queue: "a", ID: "bytes", Body: []byte("\"\xff\"")},
	})))
	ask := func(query string) (found []string) {
		t.Helper()
		noErr(t, s.read(t.Context(), "test", nil, step{sql: s.sql.in(query), scan: scanNames(&found)}))
		return found
	}
	if got := ask("SELECT id FROM redrive_waiting_json WHERE JSON_EXTRACT(body, '$.amount') = 7 AND due > '2020-01-01'"); len(got) != 1 || got[0] != "json" {
		t.Errorf("found %q", got)
	}
	if got := ask("SELECT id FROM redrive_waiting_json WHERE body IS NULL ORDER BY id"); len(got) != 2 {
		t.Errorf("without JSON: %q", got)
	}
	d := claim(t, s, "a")[0]
	noErr(t, driver.FirstError(s.Settle(t.Context(), []driver.Settlement{{Receipt: d.Receipt, Outcome: redrive.OutcomeDead, Reason: redrive.ReasonManual,
		Failure: &redrive.Failure{Message: "no money"}}})))
	if got := ask("SELECT error FROM redrive_dead_json WHERE JSON_VALUE(body, '$.name') = 'ü'"); len(got) != 1 || got[0] != "no money" {
		t.Errorf("found %q", got)
	}
}
