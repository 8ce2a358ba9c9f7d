package postgres

import (
	"context"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/internal/sqlstore"
)

// Claim implements redrive.Source. It is one statement and costs no sync.
func (s *Store) Claim(ctx context.Context, req redrive.ClaimRequest) ([]redrive.Delivery, error) {
	if err := sqlstore.CheckClaim(&req); err != nil {
		return nil, err
	}
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	ctx, cancel := s.detach(ctx)
	defer cancel()
	var got []claimed
	var err error
	switch {
	case req.Dead:
		got, err = s.claimDead(ctx, &req)
	case req.Expired:
		got, err = s.claimExpired(ctx, &req)
	case req.Alone:
		got, err = s.claimAlone(ctx, &req)
	default:
		got, err = s.claimLane(ctx, &req)
	}
	if err != nil {
		return nil, readFault("claim", err)
	}
	return inOrder(got), nil
}

// claimLane claims from a lane, beginning where the lane was last seen to begin.
func (s *Store) claimLane(ctx context.Context, req *redrive.ClaimRequest) ([]claimed, error) {
	class := int(req.Lane)
	from := s.floors.From(req, class)
	began := time.Now()
	got, err := s.take(ctx, req, "pick_lane", int64(req.Lane), orWhole(from))
	var first time.Time
	if len(got) > 0 {
		first = slices.MinFunc(got, compareClaimed).due
	}
	s.floors.Claimed(req, class, from, time.Since(began), first, len(got))
	return got, err
}

// claimAlone claims suspects, named so or left behind by a lease that ran out.
func (s *Store) claimAlone(ctx context.Context, req *redrive.ClaimRequest) ([]claimed, error) {
	from := s.floors.From(req, sqlstore.ClassSuspect)
	if other := s.floors.From(req, sqlstore.ClassLeased); other.Before(from) {
		from = other
	}
	began := time.Now()
	got, err := s.take(ctx, req, "pick_alone", orWhole(from))
	if from.IsZero() {
		for _, class := range []int{sqlstore.ClassSuspect, sqlstore.ClassLeased} {
			s.floors.Claimed(req, class, from, time.Since(began), time.Time{}, 0)
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

// firstDue looks at the whole of a class.
func (s *Store) firstDue(ctx context.Context, p sqlstore.Part) (first, now time.Time, err error) {
	ctx, cancel := context.WithTimeout(ctx, floorPatience*s.timeout)
	defer cancel()
	var due *time.Time
	err = s.read(ctx, "first_due", nil, func(r row) error { return r.Scan(&now, &due) }, p.Queue, p.Class, orNull(p.Kinds), orNull(p.ExceptKinds))
	return timeOf(due), now, err
}

// floorPatience is how much longer than anything else a look at a whole may take.
const floorPatience = 4

// claimExpired claims what has expired, and then what is too old.
func (s *Store) claimExpired(ctx context.Context, req *redrive.ClaimRequest) ([]claimed, error) {
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
		return got, nil //nolint:nilerr // what was claimed must be handed out; the next call sees the fault
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

// claimed is one row of a claim, with what orders it.
type claimed struct {
	due time.Time
	seq int64
	redrive.Delivery
}

// take claims by one of the pick statements.
func (s *Store) take(ctx context.Context, req *redrive.ClaimRequest, pick string, more ...any) ([]claimed, error) {
	nonce := newNonce()
	args := []any{req.Queue, req.Max, int64(req.Lease / time.Microsecond), nonce, req.Alone, req.Instance,
		orNull(req.Kinds), orNull(req.ExceptKinds), orNull(req.ExceptIDs)}
	var rows []claimed
	err := s.one(ctx, pick, func() { rows = rows[:0] }, func(r row) error {
		c, err := scanClaim(r, req)
		if err != nil {
			return err
		}
		c.Receipt.Position = position(placeMessage, nonce)
		if c.turn > 0 {
			c.Receipt.Position = position(placeOrdered, nonce)
		}
		rows = append(rows, c.claimed)
		return nil
	}, append(args, more...)...)
	return rows, err
}

// claimDead claims dead letters.
func (s *Store) claimDead(ctx context.Context, req *redrive.ClaimRequest) ([]claimed, error) {
	nonce := newNonce()
	var rows []claimed
	err := s.one(ctx, "claim_dead", func() { rows = rows[:0] }, func(r row) error {
		var reason int
		c, err := scanClaim(r, req, &reason)
		if err != nil {
			return err
		}
		c.Dead = redrive.Reason(reason) //nolint:gosec // a reason
		c.Receipt.Position = position(placeDead, nonce)
		rows = append(rows, c.claimed)
		return nil
	}, req.Queue, req.Max, int64(req.Lease/time.Microsecond), nonce, req.Instance,
		orNull(req.Kinds), orNull(req.ExceptKinds), orNull(req.ExceptIDs))
	return rows, err
}

// scanned is a claim with what only the store needs.
type scanned struct {
	claimed
	turn int64
}

func scanClaim(r row, req *redrive.ClaimRequest, more ...any) (c scanned, err error) {
	var headers []byte
	var lane int
	var token int64
	var expires *time.Time
	m := &c.Message
	dest := []any{&c.LeasedAt, &c.due, &c.seq, &m.ID, &lane, &c.Attempt, &c.Failures, &c.Crashes, &c.Suspect, &token, &c.turn, &m.Kind, &m.Key,
		&headers, &m.PublishedAt, &expires, &m.ReplyTo, &m.Generation, &m.Redrives, &m.Plan, &m.Origin, &m.EditedFrom, &m.Body}
	if err := r.Scan(append(dest, more...)...); err != nil {
		return c, err
	}
	m.Queue, m.PublishedAt, m.ExpiresAt = req.Queue, m.PublishedAt.UTC(), timeOf(expires)
	c.LeasedAt, c.Lane, c.Lease = c.LeasedAt.UTC(), redrive.Lane(lane), req.Lease //nolint:gosec // a lane
	c.Receipt = redrive.Receipt{Ref: m.Ref(), Token: uint64(token)}               //nolint:gosec // counts from 1
	m.Headers, err = decodeHeaders(headers)
	return c, err
}

func compareClaimed(a, b claimed) int {
	if c := a.due.Compare(b.due); c != 0 {
		return c
	}
	return int(a.seq - b.seq)
}

func inOrder(rows []claimed) []redrive.Delivery {
	slices.SortFunc(rows, compareClaimed)
	got := make([]redrive.Delivery, len(rows))
	for i := range rows {
		got[i] = rows[i].Delivery
	}
	return got
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

// Receipts. The position tells where the message stands and holds the claim's nonce.
const (
	placeMessage = 'm' // a waiting message
	placeOrdered = 'o' // one that stands in the line of its key
	placeDead    = 'd' // a dead letter
)

// newNonce is what keeps a claim apart from one that a crash of the server undid. It
// is never 0.
func newNonce() int64 { return rand.Int64() | 1 }

func position(place byte, nonce int64) string {
	return string(place) + strconv.FormatInt(nonce, 36)
}

// parsePosition is the reverse of position. What is no position of ours fits no claim.
func parsePosition(p string) (place byte, nonce int64) {
	if len(p) < 2 {
		return placeMessage, 0
	}
	nonce, err := strconv.ParseInt(p[1:], 36, 64)
	if err != nil {
		return placeMessage, 0
	}
	return p[0], nonce
}
