package mysql

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/sqlstore"
)

// Pick implements sqlstore.Server. It is one short transaction.
func (d dialect) Pick(ctx context.Context, req *driver.ClaimRequest) ([]sqlstore.Claimed, error) {
	c := claiming{store: d.Store, req: req}
	c.filter, c.filterArgs = claimFilter(req)
	var err error
	switch {
	case req.Dead:
		err = c.run(ctx, "claim_dead", c.pickDead)
	case req.Expired:
		err = c.run(ctx, "claim_expired", c.pickExpired)
	case req.Isolated:
		err = c.run(ctx, "claim_isolated", c.pickIsolated)
	default:
		err = c.run(ctx, "claim", c.pickLane)
	}
	if err == nil && req.Expired && req.MaxAge > 0 && len(c.rows) < req.Max {
		c.claimOld(ctx)
	}
	return c.rows, fault("claim", err)
}

// claimFilter is the condition of kinds and ids.
func claimFilter(req *driver.ClaimRequest) (sql string, args []any) {
	for _, f := range []struct {
		format string
		list   []string
	}{{" AND m.kind IN (%s)", req.Kinds}, {" AND m.kind NOT IN (%s)", req.ExceptKinds}, {" AND m.id NOT IN (%s)", req.ExceptIDs}} {
		if len(f.list) > 0 {
			sql += fmt.Sprintf(f.format, places(len(f.list)))
			for _, v := range f.list {
				args = append(args, []byte(v))
			}
		}
	}
	return sql, args
}

// claiming is one call of Claim.
type claiming struct {
	store      *Store
	req        *driver.ClaimRequest
	filter     string
	filterArgs []any
	rows       []sqlstore.Claimed
	picked     []sqlstore.Claimed
	now        int64
}

// run picks and takes in one transaction.
func (c *claiming) run(ctx context.Context, op string, pick func(context.Context, db) error) error {
	err := c.store.inTx(ctx, op, func(tx db) error {
		c.picked = c.picked[:0]
		if err := pick(ctx, tx); err != nil {
			return err
		}
		if len(c.picked) == 0 {
			return errAbandon
		}
		return c.take(ctx, tx)
	})
	if err == nil {
		c.rows = append(c.rows, c.picked...)
	}
	return err
}

// step is a pick_* statement.
func (c *claiming) step(name string, scan func(row) error, before []any, after ...any) step {
	args := append(append(append([]any{}, before...), c.filterArgs...), after...)
	return step{sql: c.store.sql.with(name, ":filter", c.filter), args: args, scan: scan}
}

func (c *claiming) pickLane(ctx context.Context, tx db) error {
	class := int(c.req.Lane)
	from := c.store.base.Floors.From(c.req, class)
	began := time.Now()
	err := tx.run(ctx, c.step("pick", c.scan, []any{[]byte(c.req.Queue), class, orWhole(from)}, c.req.Max))
	var first time.Time
	if len(c.picked) > 0 {
		first = c.picked[0].Due
	}
	c.store.base.Floors.Claimed(c.req, class, from, time.Since(began), first, len(c.picked))
	return err
}

// orWhole is a floor as the statements take it.
func orWhole(from time.Time) int64 {
	if from.IsZero() {
		return 0
	}
	return from.UnixMicro()
}

// FirstDue implements sqlstore.Server.
func (d dialect) FirstDue(ctx context.Context, p sqlstore.Part) (first, now time.Time, err error) {
	filter, args := claimFilter(&driver.ClaimRequest{Kinds: p.Kinds, ExceptKinds: p.ExceptKinds})
	var clock, due int64
	err = d.read(ctx, "first_due", func() { due = 0 }, step{sql: d.sql.Get("now"), scan: scanInto(&clock)},
		step{sql: d.sql.with("first_due", ":filter", filter), args: append([]any{[]byte(p.Queue), p.Class}, args...), scan: scanInto(&due)})
	if due != 0 {
		first = timeAt(due)
	}
	return first, timeAt(clock), err
}

// pickIsolated picks suspects, named so or left behind by a lease that ran out; the ones
// that wait longest first.
func (c *claiming) pickIsolated(ctx context.Context, tx db) error {
	var steps []step
	var wholes []int
	for _, class := range []int{sqlstore.ClassSuspect, sqlstore.ClassLeased} {
		from := c.store.base.Floors.From(c.req, class)
		if from.IsZero() {
			wholes = append(wholes, class)
		}
		steps = append(steps, c.step("pick", c.scan, []any{[]byte(c.req.Queue), class, orWhole(from)}, c.req.Max))
	}
	began := time.Now()
	err := tx.run(ctx, steps...)
	for _, class := range wholes {
		c.store.base.Floors.Claimed(c.req, class, time.Time{}, time.Since(began), time.Time{}, 0)
	}
	sqlstore.SortClaimed(c.picked)
	c.picked = c.picked[:min(len(c.picked), c.req.Max)]
	return err
}

func (c *claiming) pickExpired(ctx context.Context, tx db) error {
	return tx.run(ctx, c.step("pick_expired", c.scan, []any{[]byte(c.req.Queue)}, c.req.Max))
}

func (c *claiming) pickDead(ctx context.Context, tx db) error {
	return tx.run(ctx, c.step("pick_dead", c.scan, []any{[]byte(c.req.Queue)}, c.req.Max))
}

// take puts what was picked under the lease.
func (c *claiming) take(ctx context.Context, tx db) error {
	nonce := newNonce()
	due := c.now + int64(c.req.Lease/time.Microsecond)
	seqs := make([]int64, len(c.picked))
	refs := make([]redrive.Ref, len(c.picked))
	for i := range c.picked {
		d := &c.picked[i]
		p := parsePlace(d.Receipt.Position)
		p.nonce = nonce
		d.Receipt.Position = p.String()
		d.LeasedAt = timeAt(c.now)
		seqs[i], refs[i] = d.Seq, d.Receipt.Ref
	}
	var steps []step
	if c.req.Dead {
		for _, l := range byQueue(refs) {
			steps = append(steps, l.step(c.store.sql, "take_dead", nil, due, nonce, []byte(c.instance())))
		}
		return tx.run(ctx, steps...)
	}
	slices.Sort(seqs)
	for _, list := range chunks(seqs) {
		steps = append(steps, step{sql: c.store.sql.with("take", ":seqs", numbers(list)), args: []any{due, nonce, c.req.Isolated, []byte(c.instance())}})
	}
	return tx.run(ctx, steps...)
}

func (c *claiming) instance() string { return c.req.Instance[:min(len(c.req.Instance), 255)] }

// scan reads a row as it was before the claim, and makes of it what it is then.
func (c *claiming) scan(r row) error {
	var got sqlstore.Claimed
	var headers []byte
	var class, lane, reason int
	var isolated bool
	var due, token, turn, published int64
	var expires *int64
	var sum *uint32
	m := &got.Message
	dest := []any{&c.now, &due, &got.Seq, &class, &isolated, &m.ID, &lane, &got.Attempt, &got.Failures, &got.Crashes, &got.Suspect, &token, &turn,
		&m.Kind, &m.Key, &headers, &published, &expires, &m.ReplyTo, &m.Generation, &m.Redrives, &m.Plan, &m.Origin, &m.EditedFrom, &m.Body, &sum}
	p := place{kind: sqlstore.PlaceMessage}
	if c.req.Dead {
		dest = append(dest, &reason)
		p.kind = sqlstore.PlaceDead
	}
	if err := r.Scan(dest...); err != nil {
		return err
	}
	m.Queue, m.PublishedAt, m.ExpiresAt = c.req.Queue, timeAt(published), timeOf(expires)
	got.Lane, got.Lease, got.Dead = redrive.Lane(lane), c.req.Lease, redrive.Reason(reason) //nolint:gosec // small
	got.Attempt++
	if class >= sqlstore.ClassLeased { // its last claim ended without a settlement
		got.Suspect = true
		if isolated {
			got.Crashes++
		}
	}
	got.Due, p.seq = timeAt(due), got.Seq
	if turn > 0 {
		p.key = m.Key
		if p.kind == sqlstore.PlaceMessage {
			p.kind = sqlstore.PlaceOrdered
		}
	}
	got.Receipt = redrive.Receipt{Ref: m.Ref(), Token: uint64(token) + 1, Position: p.String()} //nolint:gosec // counts from 0
	m.Headers = decodeHeaders(headers)
	sqlstore.Judge(&got.Delivery, sum)
	c.picked = append(c.picked, got)
	return nil
}

// claimOld adds what was published too long ago to what has expired. If that fails, what
// was claimed must be returned all the same; the next call sees the fault.
func (c *claiming) claimOld(ctx context.Context) {
	s, queue := c.store, []byte(c.req.Queue)
	age, room := int64(c.req.MaxAge/time.Microsecond), c.req.Max-len(c.rows)
	from := ""
	if at, ok := s.oldest.Load(c.req.Queue); ok {
		from = at.(string)
	}
	to := ""
	if s.read(ctx, "old_place", nil, step{sql: s.sql.Get("old_place"), args: []any{queue, []byte(from)}, scan: scanInto(&to)}) != nil {
		return
	}
	var seqs []int64
	found := func(r row) error {
		var seq int64
		err := r.Scan(&seq)
		seqs = append(seqs, seq)
		return err
	}
	end := []byte(to)
	if to == "" {
		end = []byte(strings.Repeat("\xff", redrive.MaxIDLength))
	}
	steps := []step{c.step("old_any", found, []any{queue, []byte(from), end, age}, room)}
	for class := range sqlstore.ClassLeased {
		steps = append(steps, c.step("old_due", found, []any{queue, class, age, age}, room))
	}
	if s.read(ctx, "old", func() { seqs = nil }, steps...) != nil {
		return
	}
	slices.Sort(seqs)
	seqs = slices.Compact(seqs)
	if len(seqs) < room {
		s.oldest.Store(c.req.Queue, to) // the next look goes on there, or begins anew
	}
	seqs = seqs[:min(len(seqs), room)]
	if len(seqs) == 0 {
		return
	}
	_ = c.run(ctx, "claim_old", func(ctx context.Context, tx db) error {
		return tx.run(ctx, step{sql: s.sql.with("pick_old", ":seqs", numbers(seqs)), args: []any{age}, scan: c.scan})
	})
}
