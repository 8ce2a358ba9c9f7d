package mysql

import (
	"context"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/sqlstore"
)

// ReadMessages implements sqlstore.Server.
func (d dialect) ReadMessages(ctx context.Context, refs []redrive.Ref, found func(*sqlstore.Message, time.Time) error) error {
	var now int64
	keep := func(r row) error {
		m, err := scanMessage(r)
		if err != nil {
			return err
		}
		return found(m, timeAt(now))
	}
	steps := []step{stepSnapshot[0], stepSnapshot[1], {sql: d.sql.Get("now"), scan: scanInto(&now)}}
	for _, l := range byQueue(refs) {
		steps = append(steps, l.step(d.sql, "get_messages", keep), l.step(d.sql, "get_dead", keep))
	}
	return d.read(ctx, "get", nil, append(steps, stepCommit)...)
}

// ReadRemembered implements sqlstore.Server.
func (d dialect) ReadRemembered(ctx context.Context, refs []redrive.Ref, found func(*driver.Remembered)) error {
	var steps []step
	for _, l := range byQueue(refs) {
		steps = append(steps, l.step(d.sql, "recall", func(r row) error {
			m := new(driver.Remembered)
			var outcome, reason int
			var hash, at int64
			err := r.Scan(&m.Queue, &m.ID, &hash, &outcome, &reason, &at)
			m.Hash, m.Outcome, m.Reason, m.At = uint64(hash), redrive.Outcome(outcome), redrive.Reason(reason), timeAt(at) //nolint:gosec // bits, and small
			found(m)
			return err
		}))
	}
	return d.read(ctx, "recall", nil, steps...)
}
