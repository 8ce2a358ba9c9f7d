package postgres

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/faulttest"
	"github.com/redrive/redrive/internal/pgtest"
	"github.com/redrive/redrive/internal/proxytest"
	"github.com/redrive/redrive/internal/sqlstore"
)

func TestServerDiesUnderTraffic(t *testing.T) {
	private := pgtest.Start(t, nil)
	s, err := Open(t.Context(), private.URL(), WithTimeout(5*time.Second))
	noErr(t, err)
	defer func() { _ = s.Close() }()
	h := faulttest.NewHistory()
	stop := h.Traffic(t, s, "a")
	for round := range proofRounds(t, 4) {
		h.Busy(t, 200)
		if round%2 == 1 {
			noErr(t, private.Stop())
		}
		private.Kill()
		noErr(t, private.Resume())
	}
	h.Busy(t, 200)
	stop()
	h.Check(t, s, "a")
}

// A claim is not synced. After a crash of the server that undid it, the next claim must
// not be taken for it.
func TestClaimUndoneByACrashHasNoTwin(t *testing.T) {
	private := pgtest.Start(t, map[string]string{"wal_writer_delay": "10s"})
	s, err := Open(t.Context(), private.URL())
	noErr(t, err)
	defer func() { _ = s.Close() }()
	noErr(t, driver.FirstError(s.Publish(t.Context(), []redrive.Message{{Queue: "a"}})))
	first := claim(t, s, "a")[0]
	private.Kill()
	noErr(t, private.Resume())
	var second redrive.Delivery
	for {
		got, err := s.Claim(t.Context(), driver.ClaimRequest{Queue: "a", Max: 1, Lease: time.Minute, Instance: "other"})
		if err != nil {
			continue // the pool finds out that its connections are dead
		}
		if len(got) == 0 {
			t.Skip("the server had written the claim")
		}
		second = got[0]
		break
	}
	t.Logf("tokens %d and %d", first.Receipt.Token, second.Receipt.Token)
	if first.Receipt == second.Receipt {
		t.Fatalf("two claims with the receipt %+v", first.Receipt)
	}
	for _, o := range []redrive.Outcome{redrive.OutcomeDone, redrive.OutcomeRetry} {
		err := driver.FirstError(s.Settle(t.Context(), []driver.Settlement{{Receipt: first.Receipt, Outcome: o}}))
		if !errors.Is(err, redrive.ErrLeaseLost) {
			t.Errorf("%s by the first holder: %v", o, err)
		}
	}
	noErr(t, driver.FirstError(s.Settle(t.Context(), []driver.Settlement{{Receipt: second.Receipt, Outcome: redrive.OutcomeDone}})))
}

func TestConnectionsCutUnderTraffic(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	p := proxytest.New(t, pgtest.Shared(t).Addr())
	schema := fmt.Sprintf("test_%d", schemas.Add(1))
	s, err := Open(t.Context(), fmt.Sprintf("postgres://postgres@%s/postgres?sslmode=disable", p.Addr()), WithSchema(schema), WithTimeout(5*time.Second))
	noErr(t, err)
	defer func() { _ = s.Close() }()
	h := faulttest.NewHistory()
	stop := h.Traffic(t, s, "a")
	for range proofRounds(t, 25) {
		h.Busy(t, 20+rng.IntN(60))
		if rng.IntN(2) == 0 {
			p.Muffle() // the server carries out what was sent, and nobody hears of it
			sqlstore.Sleep(t.Context(), time.Duration(rng.IntN(20))*time.Millisecond)
		}
		p.Cut()
	}
	h.Busy(t, 100)
	stop()
	h.Check(t, openIn(t, schema), "a")
}

// The server's clock decides. That of this process may be an hour off it.
func TestClocksMayDiffer(t *testing.T) {
	for _, off := range []string{"'1 hour'", "'-1 hour'"} {
		s := open(t, func(s *Store) {
			for name, text := range s.sql.ByName {
				s.sql.ByName[name] = strings.ReplaceAll(text, "clock_timestamp()", "(clock_timestamp() + interval "+off+")")
			}
		})
		faulttest.Clocks(t, s)
		faulttest.Audited(t, s)
	}
}

func TestStatementTimeoutChangesNothing(t *testing.T) {
	s := open(t)
	noErr(t, driver.FirstError(s.Publish(t.Context(), []redrive.Message{{Queue: "a", ID: "m"}})))
	d := claim(t, s, "a")[0]
	slow := connect(t, s, func(s *Store) {
		s.adjust = func(cfg *pgxpool.Config) { cfg.ConnConfig.RuntimeParams["statement_timeout"] = "100" }
	})
	lock := dial(t)
	defer func() { _ = lock.Close(context.Background()) }()
	tx, err := lock.Begin(t.Context())
	noErr(t, err)
	_, err = tx.Exec(t.Context(), s.sql.in("SELECT FROM redrive.message FOR UPDATE"))
	noErr(t, err)
	err = driver.FirstError(slow.Settle(t.Context(), []driver.Settlement{{Receipt: d.Receipt, Outcome: redrive.OutcomeDone}}))
	if err == nil || errors.Is(err, redrive.ErrUnknown) {
		t.Errorf("a settlement that the server gave up: %v", err)
	}
	got, err := slow.Claim(t.Context(), driver.ClaimRequest{Queue: "a", Max: 1, Lease: time.Minute, Instance: "x"})
	if err != nil || len(got) != 0 {
		t.Errorf("a claim beside a lock: %v, %v", got, err)
	}
	noErr(t, tx.Rollback(t.Context()))
	noErr(t, driver.FirstError(slow.Settle(t.Context(), []driver.Settlement{{Receipt: d.Receipt, Outcome: redrive.OutcomeDone}})))
	faulttest.Audited(t, s)
}

func TestFullPoolIsAFaultNotAnUnknownOutcome(t *testing.T) {
	s := open(t, WithTimeout(300*time.Millisecond), WithoutListen(), func(s *Store) {
		s.adjust = func(cfg *pgxpool.Config) { cfg.MaxConns = 2 }
	})
	var held []*pgxpool.Conn
	for range 2 {
		c, err := s.pool.Acquire(t.Context())
		noErr(t, err)
		held = append(held, c)
	}
	err := driver.FirstError(s.Publish(t.Context(), []redrive.Message{{Queue: "a", ID: "m"}}))
	if err == nil || errors.Is(err, redrive.ErrUnknown) {
		t.Errorf("publish on a full pool: %v", err)
	}
	for _, c := range held {
		c.Release()
	}
	noErr(t, driver.FirstError(s.Publish(t.Context(), []redrive.Message{{Queue: "a", ID: "m"}})))
	if got := claim(t, s, "a"); len(got) != 1 {
		t.Errorf("%d claimed, want 1", len(got))
	}
}

func TestChangesAreSeenWithoutHints(t *testing.T) {
	s := open(t, WithoutListen(), WithPoll(time.Millisecond, 50*time.Millisecond))
	other := connect(t, s, WithoutListen())
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

func TestHintsReachOtherProcesses(t *testing.T) {
	s := open(t, WithPoll(time.Hour, time.Hour)) // only a hint can wake it
	other := connect(t, s)
	events, err := s.Wait(t.Context(), []driver.Watch{{Queue: "a"}})
	noErr(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	seen := make(chan error, 1)
	go func() {
		_, err := s.Wait(ctx, []driver.Watch{{Queue: "a", Since: events[0].Version}})
		seen <- err
	}()
	for {
		noErr(t, driver.FirstError(other.Publish(t.Context(), []redrive.Message{{Queue: "a"}})))
		select {
		case err := <-seen:
			noErr(t, err)
			return
		case <-time.After(50 * time.Millisecond): // the listener may not listen yet
		}
	}
}
