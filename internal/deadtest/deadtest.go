// Package deadtest has what tests of dead letters share: a store in a bubble of virtual
// time, messages that die in it, and an archive.
package deadtest

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/backend/memory"
	"github.com/redrive/redrive/driver"
)

// Store is a memory store with dead letters.
type Store struct {
	T *testing.T
	*memory.Store
	count int
}

// Run runs a test in a bubble of virtual time, with an empty store.
func Run(t *testing.T, test func(s *Store)) {
	synctest.Test(t, func(t *testing.T) {
		s := &Store{T: t, Store: memory.New()}
		test(s)
		synctest.Wait()
		_ = s.Close()
	})
}

// Pass lets virtual time go by, and everything that it brings happen.
func Pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// Kill adds n dead letters, m00001 and so on, each after a moment of its own. change
// may be nil.
func (s *Store) Kill(queue string, n int, change func(e *redrive.Entry)) {
	s.T.Helper()
	for range n {
		Pass(time.Millisecond)
		s.count++
		e := redrive.Entry{Message: redrive.Message{ID: fmt.Sprintf("m%05d", s.count), Queue: queue, Body: []byte("x")}, State: redrive.StateDead, Reason: redrive.ReasonExhausted}
		e.History.Record(&redrive.Failure{Message: "no luck", Types: []string{"error"}, Signature: "0123456789abcdef"}, true)
		if change != nil {
			change(&e)
		}
		if _, err := s.Apply(context.Background(), driver.Batch{Put: []redrive.Entry{e}}); err != nil {
			s.T.Fatal(err)
		}
	}
}

// Entry returns a message of a queue; nil if it is not there.
func (s *Store) Entry(queue, id string) *redrive.Entry {
	s.T.Helper()
	entries, err := s.Get(context.Background(), []redrive.Ref{{Queue: queue, ID: id}})
	if err != nil {
		s.T.Fatal(err)
	}
	return entries[0]
}

// Left returns how many dead letters there are, and how often each living message was
// redriven.
func (s *Store) Left(queue string) (dead int64, redrives map[int]int) {
	s.T.Helper()
	redrives = make(map[int]int)
	for after := ""; ; {
		page, err := s.Find(context.Background(), redrive.Query{Queue: queue, After: after, Limit: redrive.MaxPage})
		if err != nil {
			s.T.Fatal(err)
		}
		for _, e := range page.Entries {
			if e.State == redrive.StateDead {
				dead++
			}
			redrives[e.Redrives]++
		}
		if after = page.Next; after == "" {
			return dead, redrives
		}
	}
}

// FailAgain lets everything that was redriven in a queue die again.
func (s *Store) FailAgain(queue string) {
	s.T.Helper()
	ds, err := s.Claim(context.Background(), driver.ClaimRequest{Queue: queue, Lane: redrive.LaneRedrive, Max: 1000, Lease: time.Minute, Instance: "i"})
	if err != nil {
		s.T.Fatal(err)
	}
	for _, d := range ds {
		errs := s.Settle(context.Background(), []driver.Settlement{{Receipt: d.Receipt, Outcome: redrive.OutcomeDead, Reason: redrive.ReasonPermanent, Failure: &redrive.Failure{Message: "again"}}})
		if err := driver.FirstError(errs); err != nil {
			s.T.Fatal(err)
		}
	}
}

// BodyGone makes a dead letter one whose body its broker no longer has.
func BodyGone(e *redrive.Entry) {
	e.Body = nil
	e.Headers.Set(redrive.HeaderBodyGone, "deleted")
	e.History = redrive.History{}
	e.History.Record(&redrive.Failure{Message: "body gone: deleted", Types: []string{driver.TypeBodyGone}, Signature: "fedcba9876543210"}, true)
}

// Archive is an archive in memory.
type Archive struct {
	mu      sync.Mutex
	entries []redrive.Entry
	err     error
}

// Archive keeps the entries, unless it was asked to fail.
func (a *Archive) Archive(_ context.Context, entries []redrive.Entry) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.err == nil {
		a.entries = append(a.entries, entries...)
	}
	return a.err
}

// Fail makes the archive fail with err from now on; nil: no longer.
func (a *Archive) Fail(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.err = err
}

// Entries returns what was archived.
func (a *Archive) Entries() []redrive.Entry {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.entries
}
