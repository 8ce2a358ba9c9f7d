package postgres

import (
	"context"

	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/sqlstore"
)

// Update implements driver.Store. What a query selects is looked up first, and checked
// again under the lock of its change.
func (s *Store) Update(ctx context.Context, sel driver.Selection, c driver.Change, limit int) ([]driver.Updated, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	return sqlstore.Select(ctx, sel, c, limit, s.Find, s.update)
}

func (s *Store) update(ctx context.Context, u *sqlstore.Update) error {
	ctx, cancel := s.detach(ctx)
	defer cancel()
	err := s.inTx(ctx, "update", func(tx db) error { return u.Run(ctx, &newWork(tx, s.sql).Work) })
	if err != nil {
		return fault("update", err)
	}
	queues := u.Queues()
	for _, name := range queues {
		s.floors.Forget(name) // what is changed keeps the time it was due at
	}
	s.changed(queues...)
	return nil
}
