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

// Claim implements driver.Source. It is one statement and costs no sync.
func (s *Store) Claim(ctx context.Context, req driver.ClaimRequest) ([]redrive.Delivery, error) {
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
	case req.Isolated:
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
func (s *Store) claimLane(ctx context.Context, req *driver.ClaimRequest) ([]claimed, error) {
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
func (s *Store) claimAlone(ctx context.Context, req *driver.ClaimRequest) ([]claimed, error) {
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

// learnFloors reads where lanes begin that are dear to read as wholes. What it cannot
// learn, the first claim reads.
func (s *Store) learnFloors(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	_ = s.floors.Learn(ctx, s)
}

// floorPatience is how much longer than anything else a look at a whole may take.
const floorPatience = 4

// claimExpired claims what has expired, and then what is too old.
func (s *Store) claimExpired(ctx context.Context, req *driver.ClaimRequest) ([]claimed, error) {
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
func (s *Store) take(ctx context.Context, req *driver.ClaimRequest, pick string, more ...any) ([]claimed, error) {
	scan := newClaimScan(req, placeMessage)
	args := []any{req.Queue, req.Max, int64(req.Lease / time.Microsecond), scan.nonce, req.Isolated, req.Instance,
		orNull(req.Kinds), orNull(req.ExceptKinds), orNull(req.ExceptIDs)}
	err := s.one(ctx, pick, scan.reset, scan.row, append(args, more...)...)
	return scan.rows, err
}

// claimDead claims dead letters.
func (s *Store) claimDead(ctx context.Context, req *driver.ClaimRequest) ([]claimed, error) {
	scan := newClaimScan(req, placeDead)
	err := s.one(ctx, "claim_dead", scan.reset, scan.row, req.Queue, req.Max, int64(req.Lease/time.Microsecond), scan.nonce, req.Instance,
		orNull(req.Kinds), orNull(req.ExceptKinds), orNull(req.ExceptIDs))
	return scan.rows, err
}

// claimScan reads the rows of a claim, each by way of the same places.
type claimScan struct {
	req               *driver.ClaimRequest
	nonce             int64
	position, ordered string // of receipts
	rows              []claimed

	got           claimed
	lane          int
	token         int64
	headers, rare []byte
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
	if place == placeMessage {
		c.ordered = position(placeOrdered, c.nonce)
	}
	g, m := &c.got, &c.got.Message
	c.dest = []any{&g.LeasedAt, &g.due, &g.seq, &m.ID, &c.lane, &g.Attempt, &c.token, &m.Kind, &c.headers, &m.PublishedAt, &c.expires, &m.Body, &c.rare}
	return c
}

// reset forgets what a try has read that is repeated.
func (c *claimScan) reset() { c.rows = c.rows[:0] }

// row reads the next row.
func (c *claimScan) row(r row) (err error) {
	c.got = claimed{}
	if err := r.Scan(c.dest...); err != nil {
		return err
	}
	g, m := &c.got, &c.got.Message
	m.Queue, m.PublishedAt, m.ExpiresAt = c.req.Queue, m.PublishedAt.UTC(), timeOf(c.expires)
	g.LeasedAt, g.Lane, g.Lease = g.LeasedAt.UTC(), redrive.Lane(c.lane), c.req.Lease       //nolint:gosec // a lane
	g.Receipt = redrive.Receipt{Ref: m.Ref(), Token: uint64(c.token), Position: c.position} //nolint:gosec // counts from 1
	if m.Headers, err = decodeHeaders(c.headers); err != nil {
		return err
	}
	if c.rare != nil {
		if err := c.addRare(); err != nil {
			return err
		}
	}
	if c.rows == nil {
		c.rows = make([]claimed, 0, min(c.req.Max, claimRoom))
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
