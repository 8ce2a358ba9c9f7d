package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/sqlstore"
)

// Pick implements sqlstore.Server. It is one statement and costs no sync.
func (d dialect) Pick(ctx context.Context, req *driver.ClaimRequest) (got []sqlstore.Claimed, err error) {
	switch {
	case req.Dead:
		got, err = d.claimDead(ctx, req)
	case req.Expired:
		got, err = d.claimExpired(ctx, req)
	case req.Isolated:
		got, err = d.claimIsolated(ctx, req)
	default:
		got, err = d.claimLane(ctx, req)
	}
	return got, readFault("claim", err)
}

// claimLane claims from a lane, beginning where the lane was last seen to begin.
func (s *Store) claimLane(ctx context.Context, req *driver.ClaimRequest) ([]sqlstore.Claimed, error) {
	class := int(req.Lane)
	from := s.base.Floors.From(req, class)
	began := time.Now()
	got, err := s.take(ctx, req, "pick_lane", int64(req.Lane), orWhole(from))
	var first time.Time
	if len(got) > 0 {
		first = slices.MinFunc(got, func(a, b sqlstore.Claimed) int { return a.Due.Compare(b.Due) }).Due
	}
	s.base.Floors.Claimed(req, class, from, time.Since(began), first, len(got))
	return got, err
}

// claimIsolated claims suspects, named so or left behind by a lease that ran out.
func (s *Store) claimIsolated(ctx context.Context, req *driver.ClaimRequest) ([]sqlstore.Claimed, error) {
	from := s.base.Floors.From(req, sqlstore.ClassSuspect)
	if other := s.base.Floors.From(req, sqlstore.ClassLeased); other.Before(from) {
		from = other
	}
	began := time.Now()
	got, err := s.take(ctx, req, "pick_isolated", orWhole(from))
	if from.IsZero() {
		for _, class := range []int{sqlstore.ClassSuspect, sqlstore.ClassLeased} {
			s.base.Floors.Claimed(req, class, from, time.Since(began), time.Time{}, 0)
		}
	}
	return got, err
}

// orWhole is a floor as the statements take it.
func orWhole(from time.Time) time.Time {
	if from.IsZero() {
		return time.Unix(0, 0).UTC()
	}
	return from
}

// FirstDue implements sqlstore.Server.
func (d dialect) FirstDue(ctx context.Context, p sqlstore.Part) (first, now time.Time, err error) {
	var due *time.Time
	err = d.read(ctx, "first_due", nil, func(r row) error { return r.Scan(&now, &due) }, p.Queue, p.Class, orNull(p.Kinds), orNull(p.ExceptKinds))
	return timeOf(due), now, err
}

// claimExpired claims what has expired, and then what is too old.
func (s *Store) claimExpired(ctx context.Context, req *driver.ClaimRequest) ([]sqlstore.Claimed, error) {
	got, err := s.take(ctx, req, "pick_expired")
	if err != nil || req.MaxAge <= 0 || len(got) == req.Max {
		return got, err
	}
	rest := *req
	rest.Max -= len(got)
	from := ""
	if at, ok := s.oldest.Load(req.Queue); ok {
		from = at.(string)
	}
	old, err := s.take(ctx, &rest, "pick_old", int64(req.MaxAge/time.Microsecond), from)
	if err != nil {
		return got, nil //nolint:nilerr // what was claimed must be returned; the next call sees the fault
	}
	if len(old) < rest.Max {
		s.lookFurther(ctx, req.Queue, from)
	}
	return append(got, old...), nil
}

// lookFurther notes where the next look for old messages begins. If that fails, it
// begins where this one did.
func (s *Store) lookFurther(ctx context.Context, queue, from string) {
	next := ""
	if s.one(ctx, "old_place", nil, func(r row) error { return r.Scan(&next) }, queue, from) == nil {
		s.oldest.Store(queue, next)
	}
}

// take claims by one of the pick statements.
func (s *Store) take(ctx context.Context, req *driver.ClaimRequest, pick string, more ...any) ([]sqlstore.Claimed, error) {
	scan := newClaimScan(req, sqlstore.PlaceMessage)
	args := []any{req.Queue, req.Max, int64(req.Lease / time.Microsecond), scan.nonce, req.Isolated, req.Instance,
		orNull(req.Kinds), orNull(req.ExceptKinds), orNull(req.ExceptIDs)}
	err := s.one(ctx, pick, scan.reset, scan.row, append(args, more...)...)
	return scan.rows, err
}

// claimDead claims dead letters.
func (s *Store) claimDead(ctx context.Context, req *driver.ClaimRequest) ([]sqlstore.Claimed, error) {
	scan := newClaimScan(req, sqlstore.PlaceDead)
	err := s.one(ctx, "claim_dead", scan.reset, scan.row, req.Queue, req.Max, int64(req.Lease/time.Microsecond), scan.nonce, req.Instance,
		orNull(req.Kinds), orNull(req.ExceptKinds), orNull(req.ExceptIDs))
	return scan.rows, err
}

// claimScan reads the rows of a claim, each by way of the same places.
type claimScan struct {
	req               *driver.ClaimRequest
	nonce             int64
	position, ordered string // of receipts
	rows              []sqlstore.Claimed

	got           sqlstore.Claimed
	lane          int
	token         int64
	headers, rare []byte
	sum           *int32
	expires       *time.Time
	dest          []any
}

// rareParts are what most messages have none of.
type rareParts struct {
	Failures   int    `json:"failures"`
	Crashes    int    `json:"crashes"`
	Suspect    bool   `json:"suspect"`
	Turn       int64  `json:"turn"`
	Key        string `json:"key"`
	ReplyTo    string `json:"reply_to"`
	Generation int    `json:"generation"`
	Redrives   int    `json:"redrives"`
	Plan       string `json:"plan"`
	Origin     string `json:"origin"`
	EditedFrom string `json:"edited_from"`
	Reason     uint8  `json:"reason"`
}

func newClaimScan(req *driver.ClaimRequest, place byte) *claimScan {
	c := &claimScan{req: req, nonce: newNonce()}
	c.position = position(place, c.nonce)
	c.ordered = c.position
	if place == sqlstore.PlaceMessage {
		c.ordered = position(sqlstore.PlaceOrdered, c.nonce)
	}
	g, m := &c.got, &c.got.Message
	c.dest = []any{&g.LeasedAt, &g.Due, &g.Seq, &m.ID, &c.lane, &g.Attempt, &c.token, &m.Kind, &c.headers, &m.PublishedAt, &c.expires, &m.Body, &c.sum, &c.rare}
	return c
}

// reset forgets what a try has read that is repeated.
func (c *claimScan) reset() { c.rows = c.rows[:0] }

// row reads the next row.
func (c *claimScan) row(r row) (err error) {
	c.got = sqlstore.Claimed{}
	if err := r.Scan(c.dest...); err != nil {
		return err
	}
	g, m := &c.got, &c.got.Message
	m.Queue, m.PublishedAt, m.ExpiresAt = c.req.Queue, m.PublishedAt.UTC(), timeOf(c.expires)
	g.LeasedAt, g.Lane, g.Lease = g.LeasedAt.UTC(), redrive.Lane(c.lane), c.req.Lease       //nolint:gosec // a lane
	g.Receipt = redrive.Receipt{Ref: m.Ref(), Token: uint64(c.token), Position: c.position} //nolint:gosec // counts from 1
	m.Headers = decodeHeaders(c.headers)
	if c.rare != nil {
		if err := c.addRare(); err != nil {
			return err
		}
	}
	sqlstore.Judge(&g.Delivery, sumOf(c.sum))
	if c.rows == nil {
		c.rows = make([]sqlstore.Claimed, 0, min(c.req.Max, claimRoom))
	}
	c.rows = append(c.rows, *g)
	return nil
}

// claimRoom is for how many messages room is made with the first.
const claimRoom = 100

func (c *claimScan) addRare() error {
	var p rareParts
	if err := json.Unmarshal(c.rare, &p); err != nil {
		return fmt.Errorf("%w: parts of message %s: %w", redrive.ErrCorrupt, c.got.ID, err)
	}
	g, m := &c.got, &c.got.Message
	g.Failures, g.Crashes, g.Suspect, g.Dead = p.Failures, p.Crashes, p.Suspect, redrive.Reason(p.Reason)
	m.Key, m.ReplyTo, m.Generation, m.Redrives = p.Key, p.ReplyTo, p.Generation, p.Redrives
	m.Plan, m.Origin, m.EditedFrom = p.Plan, p.Origin, p.EditedFrom
	if p.Turn > 0 {
		g.Receipt.Position = c.ordered
	}
	return nil
}

func orNull(list []string) []string {
	if len(list) == 0 {
		return nil
	}
	return list
}

func timeOf(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.UTC()
}

// newNonce is what keeps a claim apart from one that a crash of the server undid. It
// is never 0.
func newNonce() int64 { return rand.Int64() | 1 }

// position tells where the message stands and holds the claim's nonce.
func position(place byte, nonce int64) string {
	return string(place) + strconv.FormatInt(nonce, 36)
}

// nonceOf is the nonce in a position. What is no position of ours fits no claim.
func nonceOf(position string) int64 {
	if len(position) < 2 {
		return 0
	}
	nonce, err := strconv.ParseInt(position[1:], 36, 64)
	if err != nil {
		return 0
	}
	return nonce
}
