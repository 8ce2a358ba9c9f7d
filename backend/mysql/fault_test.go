package mysql

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/faulttest"
	"github.com/redrive/redrive/internal/mariadbtest"
	"github.com/redrive/redrive/internal/proxytest"
	"github.com/redrive/redrive/internal/sqlstore"
)

func TestServerDiesUnderTraffic(t *testing.T) {
	own := mariadbtest.Start(t, nil)
	s, err := Open(t.Context(), own.URL(mariadbtest.Database), WithTimeout(5*time.Second))
	noErr(t, err)
	defer func() { _ = s.Close() }()
	h := faulttest.NewHistory()
	stop := h.Traffic(t, s, "a")
	for round := range proofRounds(t, 3) {
		h.Busy(t, 100)
		if round%2 == 1 {
			noErr(t, own.Stop())
		}
		own.Kill()
		noErr(t, own.Resume())
	}
	h.Busy(t, 100)
	stop()
	h.Check(t, s, "a")
}

func TestConnectionsCutUnderTraffic(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	p := proxytest.New(t, mariadbtest.Shared(t).Addr())
	prefix := newPrefix()
	s, err := Open(t.Context(), fmt.Sprintf("mysql://root@%s/%s", p.Addr(), mariadbtest.Database), WithPrefix(prefix), WithTimeout(5*time.Second))
	noErr(t, err)
	defer func() { _ = s.Close() }()
	h := faulttest.NewHistory()
	stop := h.Traffic(t, s, "a")
	for range proofRounds(t, 20) {
		h.Busy(t, 20+rng.IntN(60))
		if rng.IntN(2) == 0 {
			p.Muffle() // the server carries out what was sent, and nobody hears of it
			sqlstore.Sleep(t.Context(), time.Duration(rng.IntN(20))*time.Millisecond)
		}
		p.Cut()
	}
	h.Busy(t, 100)
	stop()
	h.Check(t, openAs(t, prefix), "a")
}

// lockRow holds the lock of a message until the test releases it.
func lockRow(t testing.TB, s *Store) (release func()) {
	t.Helper()
	tx := begin(t, dial(t))
	_, err := tx.ExecContext(t.Context(), "SELECT * FROM "+s.sql.prefix+"message FOR UPDATE")
	noErr(t, err)
	return func() { noErr(t, tx.Rollback()) }
}

// A server that gives a statement up changes nothing, and says so; neither does a lock
// timeout, which undoes only its statement.
func TestStatementTimeoutChangesNothing(t *testing.T) {
	for name, params := range map[string]string{"max_statement_time": "?max_statement_time=0.1", "lock timeout": "?pool_max_conns=2"} {
		t.Run(name, func(t *testing.T) {
			s := open(t)
			if name == "max_statement_time" && !s.maria {
				t.Skip("MySQL bounds only what reads")
			}
			noErr(t, driver.FirstError(s.Publish(t.Context(), []redrive.Message{{Queue: "a", ID: "m"}, {Queue: "a", ID: "n"}})))
			got := claim(t, s, "a")
			slow, err := Open(t.Context(), mariadbtest.Shared(t).URL(mariadbtest.Database)+params, WithPrefix(s.sql.prefix), WithTimeout(2*time.Second))
			noErr(t, err)
			defer func() { _ = slow.Close() }()
			release := lockRow(t, s)
			settle := func() error {
				return driver.FirstError(slow.Settle(t.Context(), []driver.Settlement{{Receipt: got[0].Receipt, Outcome: redrive.OutcomeDone},
					{Receipt: got[1].Receipt, Outcome: redrive.OutcomeDead, Reason: redrive.ReasonManual}}))
			}
			if err := settle(); err == nil || errors.Is(err, redrive.ErrUnknown) {
				t.Errorf("a settlement that was given up: %v", err)
			}
			more, err := slow.Claim(t.Context(), driver.ClaimRequest{Queue: "a", Max: 1, Lease: time.Minute, Instance: "x"})
			if err != nil || len(more) != 0 {
				t.Errorf("a claim beside a lock: %v, %v", more, err)
			}
			release()
			noErr(t, settle())
			faulttest.Audited(t, s)
		})
	}
}

// An empty claim leaves no lock behind that keeps others from publishing.
func TestEmptyClaimBlocksNobody(t *testing.T) {
	s := open(t)
	for range 10 {
		if got := claim(t, s, "a"); len(got) != 0 {
			t.Fatalf("claimed %+v", got)
		}
	}
	var open int
	noErr(t, s.pool.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM information_schema.INNODB_TRX WHERE trx_rows_locked > 0").Scan(&open))
	noErr(t, driver.FirstError(s.Publish(t.Context(), []redrive.Message{{Queue: "a"}})))
	if open != 0 {
		t.Errorf("%d transactions hold locks", open)
	}
}

func TestFullPoolIsAFaultNotAnUnknownOutcome(t *testing.T) {
	s := open(t, WithTimeout(300*time.Millisecond))
	s.pool.SetMaxOpenConns(2)
	var held []interface{ Close() error }
	for range 2 {
		c, err := s.pool.Conn(t.Context())
		noErr(t, err)
		held = append(held, c)
	}
	err := driver.FirstError(s.Publish(t.Context(), []redrive.Message{{Queue: "a", ID: "m"}}))
	if err == nil || errors.Is(err, redrive.ErrUnknown) {
		t.Errorf("publish on a full pool: %v", err)
	}
	for _, c := range held {
		noErr(t, c.Close())
	}
	noErr(t, driver.FirstError(s.Publish(t.Context(), []redrive.Message{{Queue: "a", ID: "m"}})))
	if got := claim(t, s, "a"); len(got) != 1 {
		t.Errorf("%d claimed, want 1", len(got))
	}
	if st := s.Stats(); st.Pool.Max != 2 || st.Pool.Waits == 0 || len(st.Statements) == 0 {
		t.Errorf("%+v", st)
	}
}

// Settlements, emits and publishes of the same messages and ids, in every order: the
// server has to break deadlocks, and nobody sees any.
func TestDeadlocksAreRepeatedInside(t *testing.T) {
	s := open(t)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	const n, workers = 40, 8
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(seed, uint64(w)))
			for range 20 {
				msgs := make([]redrive.Message, n)
				for i, j := range rng.Perm(n) {
					msgs[i] = redrive.Message{Queue: "a", ID: fmt.Sprint(j), Key: fmt.Sprint(j % 3)}
				}
				for _, err := range s.Publish(ctx, msgs) {
					if err != nil && !errors.Is(err, redrive.ErrDuplicate) {
						t.Errorf("publish: %v", err)
						return
					}
				}
				got, err := s.Claim(ctx, driver.ClaimRequest{Queue: "a", Max: n / 2, Lease: time.Minute, Instance: "x"})
				if err != nil {
					t.Errorf("claim: %v", err)
					return
				}
				list := make([]driver.Settlement, len(got))
				for i, j := range rng.Perm(len(got)) {
					list[i] = driver.Settlement{Receipt: got[j].Receipt, Outcome: redrive.OutcomeRelease}
					if j%2 == 0 {
						list[i].Outcome, list[i].Emit = redrive.OutcomeRepeat, []redrive.Message{{Queue: "b", ID: fmt.Sprint(rng.IntN(n))}}
					}
				}
				if err := driver.FirstError(s.Settle(ctx, list)); err != nil {
					t.Errorf("settle: %v", err)
					return
				}
			}
		})
	}
	wg.Wait()
	faulttest.Audited(t, s)
}

// A change of another process is seen within the longest poll interval.
func TestChangesOfOthersAreSeen(t *testing.T) {
	s := open(t, WithPoll(time.Millisecond, 50*time.Millisecond))
	other := connect(t, s)
	events, err := s.Wait(t.Context(), []driver.Watch{{Queue: "a"}})
	noErr(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	noErr(t, driver.FirstError(other.Publish(t.Context(), []redrive.Message{{Queue: "a"}})))
	for {
		events, err = s.Wait(ctx, []driver.Watch{{Queue: "a", Since: events[0].Version}})
		noErr(t, err)
		if events[0].Lanes.Has(redrive.LaneFresh) {
			return
		}
	}
}

// Ids and names that a collation takes for the same are not.
func TestNamesAreBytes(t *testing.T) {
	s := open(t)
	ids := []string{"a", "A", "Aa", "aA"}
	for _, id := range ids {
		for _, kind := range []string{"ü", "u"} {
			noErr(t, driver.FirstError(s.Publish(t.Context(), []redrive.Message{{Queue: "q", ID: id + kind[:0] + fmt.Sprint(len(kind)), Kind: kind, Key: id}})))
		}
	}
	page, err := s.Find(t.Context(), redrive.Query{Queue: "q", Key: "A"})
	noErr(t, err)
	if len(page.Entries) != 2 {
		t.Errorf("%d of the key A, want 2", len(page.Entries))
	}
	got, err := s.Claim(t.Context(), driver.ClaimRequest{Queue: "q", Max: 100, Lease: time.Minute, Instance: "x", Kinds: []string{"ü"}})
	noErr(t, err)
	if len(got) != len(ids) {
		t.Errorf("%d of the kind ü, want %d", len(got), len(ids))
	}
}

// A message that the server's settings do not let pass is refused by itself.
func TestMessagesLargerThanAPacket(t *testing.T) {
	own := mariadbtest.Start(t, map[string]string{"max_allowed_packet": "1M", "innodb_flush_method": "nosync"})
	s, err := Open(t.Context(), own.URL(mariadbtest.Database))
	noErr(t, err)
	defer func() { _ = s.Close() }()
	large := make([]byte, 900<<10) // as text it may take twice that: it goes by a prepared statement
	for i := range large {
		large[i] = '\''
	}
	errs := s.Publish(t.Context(), []redrive.Message{{Queue: "a", ID: "large", Body: large}})
	noErr(t, driver.FirstError(errs))
	err = driver.FirstError(s.Publish(t.Context(), []redrive.Message{{Queue: "a", ID: "huge", Body: make([]byte, 2<<20)}}))
	if !errors.Is(err, redrive.ErrInvalid) {
		t.Errorf("a message larger than the server takes: %v", err)
	}
	many := make([]redrive.Message, 40)
	for i := range many {
		many[i] = redrive.Message{Queue: "a", Body: large[:100<<10]}
	}
	noErr(t, driver.FirstError(s.Publish(t.Context(), many)))
	got := claim(t, s, "a")
	if len(got) != 41 || string(got[0].Body) != string(large) {
		t.Errorf("%d claimed, want 41", len(got))
	}
	list := make([]driver.Settlement, len(got))
	for i := range got {
		list[i] = driver.Settlement{Receipt: got[i].Receipt, Outcome: redrive.OutcomeDead, Reason: redrive.ReasonManual}
	}
	noErr(t, driver.FirstError(s.Settle(t.Context(), list)))
	for {
		done, err := s.Update(t.Context(), driver.Selection{Query: &redrive.Query{Queue: "a", State: redrive.StateDead}}, driver.Change{Action: driver.ActRedrive}, 100)
		noErr(t, err)
		if len(done) == 0 {
			break
		}
	}
	faulttest.Audited(t, s)
}
