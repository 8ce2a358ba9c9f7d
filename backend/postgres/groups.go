package postgres

import (
	"context"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// Groups implements driver.Store.
func (s *Store) Groups(ctx context.Context, q redrive.Query) (groups []driver.Cause, complete bool, err error) {
	limit := q.PageLimit()
	header, value := headerFilter(q.Header)
	name := "groups"
	args := []any{orNullText(q.Queue), redrive.Examined + 1, limit, orNullInt(int(q.Reason)), orNullText(q.Signature), orNullText(q.Kind),
		orNullText(q.Key), orNullText(q.Plan), orNullText(q.NotPlan), sinceOrNull(q.Since), untilOrNull(q.Until), orNullText(q.Text), header, value}
	plain := q
	plain.Queue, plain.State, plain.Reason, plain.Signature, plain.After, plain.Limit, plain.Bodies = "", 0, 0, "", "", 0, false
	if plain == (redrive.Query{}) {
		name = "groups_indexed"
		args = []any{orNullText(q.Queue), limit, orNullInt(int(q.Reason)), orNullText(q.Signature)}
	}
	var looked, found int64
	err = s.read(ctx, name, func() { groups = nil }, func(r row) error {
		var g driver.Cause
		var reason int
		var first, last time.Time
		var failure []byte
		if err := r.Scan(&g.Queue, &reason, &g.Signature, &g.Count, &first, &last, &g.Example.ID, &failure, &looked, &found); err != nil {
			return err
		}
		g.Reason, g.First, g.Last, g.Example.Queue = redrive.Reason(reason), first.UTC(), last.UTC(), g.Queue //nolint:gosec // a reason
		g.Show(driver.DecodeFailure(failure))
		groups = append(groups, g)
		return nil
	}, args...)
	return groups, looked <= redrive.Examined && found <= int64(limit), err
}
