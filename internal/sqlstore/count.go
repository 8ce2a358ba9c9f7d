package sqlstore

import (
	"context"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// ByCause reports a query of dead letters by queue, reason and signature only.
func ByCause(q *redrive.Query) bool {
	rest := *q
	rest.Queue, rest.State, rest.Reason, rest.Signature, rest.After, rest.Limit, rest.Bodies = "", 0, 0, "", "", 0, false
	return rest == (redrive.Query{})
}

// Count implements driver.Store.
func (v Verbs) Count(ctx context.Context, q redrive.Query) (driver.Count, error) {
	if err := v.base.Ready(ctx); err != nil {
		return driver.Count{}, err
	}
	cut := q
	cut.Until = time.Time{}
	cause := q.Reason != 0 || q.Signature != ""
	if q.Text != "" && q.State == redrive.StateDead && q.After == "" {
		rest := q
		rest.Text, rest.Shown, rest.ErrorsOnly, rest.Since, rest.Until = "", false, false, time.Time{}, time.Time{}
		if ByCause(&rest) && q.Reason == 0 && q.Signature == "" {
			if n, ok, err := v.base.own.CountText(ctx, &q); ok || err != nil {
				return driver.Count{N: n, Complete: true, Examined: n, Index: true}, err
			}
		}
	}
	switch {
	case q.After != "" || !ByCause(&cut):
		return driver.CountFound(ctx, v.Find, q)
	case q.State == redrive.StateDead || q.State == 0 && cause:
		n, late, err := v.base.own.CountDead(ctx, &q)
		return driver.Count{N: n - late, Complete: true, Examined: late}, err
	case cause && q.Reason == 0 && q.State == redrive.StateWaiting:
		return driver.CountFound(ctx, v.Find, q)
	case cause: // of what waits
		return driver.Count{Complete: true}, nil
	case !q.Until.IsZero():
		return driver.CountFound(ctx, v.Find, q)
	}
	var queues []string
	if q.Queue != "" {
		queues = []string{q.Queue}
	}
	counts, err := v.base.own.Counts(ctx, queues...)
	c := driver.Count{Complete: true}
	for i := range counts {
		c.N += inState(&counts[i], q.State)
	}
	return c, err
}

// inState is how many messages of a queue are in a state; 0: any.
func inState(c *driver.Counts, state redrive.State) int64 {
	switch state {
	case redrive.StateWaiting:
		return c.AllWaiting() - c.Leased - c.Blocked
	case redrive.StateLeased:
		return c.Leased
	case redrive.StateBlocked:
		return c.Blocked
	}
	return c.AllWaiting() + c.AllDead()
}

// Deaths implements driver.Store. Differences are folded first, which bounds the series.
func (v Verbs) Deaths(ctx context.Context, q redrive.Query) ([]driver.Deaths, error) {
	if err := v.base.Ready(ctx); err != nil {
		return nil, err
	}
	if err := v.base.foldAll(ctx); err != nil {
		return nil, v.base.own.Fault("deaths", err)
	}
	var list []driver.Deaths
	err := v.base.own.ReadBuckets(ctx, &q, func() { list = nil }, func(c *CauseCount) {
		if n := len(list); n == 0 || (Cause{list[n-1].Queue, list[n-1].Reason, list[n-1].Signature}) != c.Cause {
			list = append(list, driver.Deaths{Queue: c.Queue, Reason: c.Reason, Signature: c.Signature})
		}
		d := &list[len(list)-1]
		d.Buckets = append(d.Buckets, driver.DeathBucket{Start: time.UnixMicro(c.Start).UTC(), Width: c.Width, Count: c.Deaths})
	})
	return list, err
}
