package plan_test

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/backend/memory"
	"github.com/redrive/redrive/driver"
)

// faultyStore fails writes of records, or page look-ups, on demand.
type faultyStore struct {
	*memory.Store
	passes atomic.Int64           // so many writes of plans succeed before
	writes atomic.Int64           // so many fail
	update atomic.Pointer[func()] // called before messages are changed
	plans  atomic.Pointer[func()] // called once, before a plan is written
	finds  atomic.Pointer[error]
	found  atomic.Int64

	exclusive bool // else several processes have it open
}

func (s *faultyStore) beforePlan(f func())   { s.plans.Store(&f) }
func (s *faultyStore) beforeUpdate(f func()) { s.update.Store(&f) }

func (s *faultyStore) Caps() driver.Caps {
	c := s.Store.Caps()
	c.Exclusive = s.exclusive
	return c
}

var errBroken = errors.New("broken")

func (s *faultyStore) Apply(ctx context.Context, b driver.Batch) ([]error, error) {
	if len(b.Records) > 0 && b.Records[0].Space == "plans" {
		if f := s.plans.Swap(nil); f != nil {
			(*f)()
		}
	}
	if len(b.Records) > 0 && b.Records[0].Space == "plans" && s.writes.Load() > 0 && s.passes.Add(-1) < 0 {
		s.writes.Add(-1)
		return nil, errBroken
	}
	return s.Store.Apply(ctx, b)
}

func (s *faultyStore) Update(ctx context.Context, sel driver.Selection, c driver.Change, limit int) ([]driver.Updated, error) {
	if f := s.update.Load(); f != nil {
		(*f)()
	}
	return s.Store.Update(ctx, sel, c, limit)
}

func (s *faultyStore) Find(ctx context.Context, q redrive.Query) (driver.Page, error) {
	s.found.Add(1)
	if err := s.finds.Load(); err != nil {
		return driver.Page{}, *err
	}
	return s.Store.Find(ctx, q)
}
