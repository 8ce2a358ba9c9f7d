package redisstream

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redrive/redrive"
)

// minLease is the shortest lease.
const minLease = 10 * time.Millisecond

// claimPage is how many messages one script hands out at most.
const claimPage = 200

// errTrimmed is why a message has lost its body.
var errTrimmed = errors.New("another client deleted or trimmed its entry of the stream while it waited here")

// Claim implements redrive.Source. More than 200 messages are handed out by several
// scripts.
func (s *Store) Claim(ctx context.Context, req redrive.ClaimRequest) ([]redrive.Delivery, error) {
	if req.Max < 1 || req.Lease < minLease || int(req.Lane) >= redrive.Lanes {
		return nil, &redrive.Error{
			Op: "claim", Queue: req.Queue,
			Err:  fmt.Errorf("%w request: max %d, lease %s, lane %d", redrive.ErrInvalid, req.Max, req.Lease, req.Lane),
			Hint: "ask for at least one message, under a lease of at least 10 ms",
		}
	}
	if s.ctx.Err() != nil {
		return nil, redrive.ErrClosed
	}
	q := s.queue(req.Queue)
	keys := s.keys(q)
	var all []redrive.Delivery
	skipped := int64(0)
	for len(all) < req.Max {
		n := min(req.Max-len(all), claimPage)
		got, err := s.conn.Write(ctx, scriptClaim, keys, claimArgs(q, &req, n, skipped)...)
		if err != nil {
			if len(all) > 0 {
				return all, nil // what was handed out before is handled
			}
			return nil, s.fail(err)
		}
		answer := items(got)
		page, err := s.deliveries(ctx, q, &req, answer)
		if err != nil {
			return all, err
		}
		all = append(all, page...)
		skipped += number(at(answer, 1))
		if number(at(answer, 2)) == 0 && len(items(at(answer, 3))) < n*5 {
			break
		}
	}
	s.stats.claimed.Add(int64(len(all)))
	return all, nil
}

func claimArgs(q *queue, req *redrive.ClaimRequest, n int, skipped int64) []any {
	what := strconv.Itoa(int(req.Lane))
	switch {
	case req.Expired:
		what = "expired"
	case req.Dead:
		what = "dead"
	case req.Alone:
		what = "alone"
	}
	var nonce [6]byte
	_, _ = rand.Read(nonce[:]) // never fails
	age := int64(0)
	if req.MaxAge > 0 {
		age = max(req.MaxAge.Microseconds(), 1)
	}
	instance := req.Instance
	if instance == "" {
		instance = "-"
	}
	return []any{q.name, q.tag, what, n, span(req.Lease), hex.EncodeToString(nonce[:]), instance, age, skipped,
		strs(req.Kinds), strs(req.ExceptKinds), strs(req.ExceptIDs)}
}

// deliveries reads what the script handed out. What cannot be understood becomes a dead
// letter here: its lease is ours.
func (s *Store) deliveries(ctx context.Context, q *queue, req *redrive.ClaimRequest, answer []any) ([]redrive.Delivery, error) {
	now := number(at(answer, 0))
	out := items(at(answer, 3))
	list := make([]redrive.Delivery, 0, len(out)/5)
	var bad []*item
	for i := 0; i+4 < len(out); i += 5 {
		it, err := q.decode(text(out[i]), out[i+4], text(out[i+1]), now+span(req.Lease), now)
		if err != nil {
			return nil, err
		}
		if it.bad != nil && !it.dead() {
			bad = append(bad, it)
			continue
		}
		h := &it.held
		d := redrive.Delivery{
			Message: it.msg, Lane: it.lane, Attempt: int(h.attempts), Failures: int(it.failures), Crashes: int(it.crashes),
			Suspect: it.suspect(), LeasedAt: moment(now), Lease: req.Lease,
			Receipt: redrive.Receipt{Ref: it.msg.Ref(), Token: uint64(h.token), Position: it.place + "\n" + it.holder}, //nolint:gosec // never negative
		}
		if it.dead() {
			d.Dead = it.reason
		}
		s.copies.add(it, req.Lease)
		list = append(list, d)
	}
	return list, s.bury(ctx, bad)
}

// bury makes dead letters of what nobody can handle.
func (s *Store) bury(ctx context.Context, list []*item) error {
	if len(list) == 0 {
		return nil
	}
	st := s.step(ctx)
	for _, it := range list {
		f := &redrive.Failure{At: time.Now().UTC(), Attempt: int(it.attempts), Reason: redrive.ReasonUndecodable,
			Types: []string{"redisstream.undecodable"}, Message: it.bad.Error(), Signature: "redisstream:undecodable"}
		if it.lost {
			f.Types, f.Signature = []string{"redisstream.trimmed"}, "redisstream:trimmed"
		}
		f.Clean()
		it.record(f, true)
		o := &changeOp{it: it, active: true, what: "die", memory: memory{outcome: redrive.OutcomeDead, reason: redrive.ReasonUndecodable}}
		o.die(redrive.ReasonUndecodable)
		if err := st.add(o); err != nil {
			return err
		}
	}
	_, err := st.run(ctx, scriptStep)
	return err
}

// position takes a receipt's position apart.
func position(r *redrive.Receipt) (place, holder string, ok bool) {
	place, holder, ok = strings.Cut(r.Position, "\n")
	if !ok || len(place) < 2 || !strings.Contains("sid", place[:1]) {
		return "", "", false
	}
	h, ok := parseHolder(holder)
	return place, holder, ok && uint64(h.token) == r.Token //nolint:gosec // never negative
}
