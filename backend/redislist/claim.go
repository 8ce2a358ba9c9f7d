package redislist

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/redisconn"
)

const (
	minLease = 10 * time.Millisecond
	// claimBytes ends one step of a claim: larger messages come in smaller steps, so
	// that the server is not held up.
	claimBytes = 4 << 20
)

// Claim implements driver.Source. In the fresh lane come messages whose delay has
// passed, then the list.
func (s *Source) Claim(ctx context.Context, req driver.ClaimRequest) ([]redrive.Delivery, error) {
	if req.Max < 1 || req.Lease < minLease || int(req.Lane) >= driver.Lanes {
		return nil, &redrive.Error{
			Op: "claim", Queue: req.Queue,
			Err:  fmt.Errorf("%w request: max %d, lease %s, lane %d", redrive.ErrInvalid, req.Max, req.Lease, req.Lane),
			Hint: "ask for at least one message, under a lease of at least 10 ms",
		}
	}
	if err := s.enter(ctx); err != nil || req.Dead || req.Expired {
		return nil, err
	}
	q, err := s.queue(req.Queue)
	if err != nil {
		return nil, err
	}
	var all []redrive.Delivery
	for len(all) < req.Max {
		got, more, err := s.claim(ctx, q, &req, min(req.Max-len(all), batch))
		if err != nil {
			if len(all) > 0 { // what was claimed is not lost with what was not
				return all, nil
			}
			return nil, err
		}
		all = append(all, got...)
		if !more {
			break
		}
	}
	if len(all) < req.Max {
		s.drained(q, &req)
	}
	return all, nil
}

// claim is one step of a claim.
func (s *Source) claim(ctx context.Context, q *queue, req *driver.ClaimRequest, most int) (got []redrive.Delivery, more bool, err error) {
	k := q.keys
	nonce := newNonce()
	script, names := claimScript, []string{k.waiting, k.taken, k.seq, k.body, k.state, k.history, k.due[req.Lane], k.leases, k.wake}
	args := []any{int(req.Lane), most, req.Lease.Microseconds(), nonce, req.Instance, claimBytes, s.end(), s.o.foreign()}
	if req.Isolated {
		script, names = suspectScript, []string{k.body, k.state, k.history, k.leases}
		args = []any{most, req.Lease.Microseconds(), nonce, req.Instance}
	}
	// A claim need not be on the replicas: without it the message waits there.
	v, err := s.conn.Run(ctx, script, names, args...)
	if err != nil {
		return nil, false, redisconn.Fault(err)
	}
	list, ok := v.([]any)
	if !ok || len(list) == 0 {
		return nil, false, badAnswer(script.Name(), v)
	}
	found, err := rows(script.Name(), list[1:])
	if err != nil {
		return nil, false, err
	}
	got = make([]redrive.Delivery, len(found))
	for i, r := range found {
		r.delivery(q.name, nonce, req.Lease, &got[i])
	}
	s.held.take(got)
	return got, list[0] == int64(1), nil
}

func (r *row) delivery(queue, nonce string, lease time.Duration, d *redrive.Delivery) {
	d.Message, d.Unfit = r.message(queue)
	d.Lane = redrive.Lane(r.lane) //nolint:gosec // 0 to 2
	d.Attempt, d.Failures, d.Crashes, d.Suspect = r.attempts, r.failures, r.crashes, r.suspect
	d.LeasedAt, d.Lease = moment(r.claimed), lease
	d.Receipt = r.receipt(d.Ref(), nonce)
	if h := r.history(); h.First != nil {
		d.History = &h
	}
}

// newNonce tells one claim from every other, also if the server forgot some.
func newNonce() string {
	var b [9]byte
	_, _ = rand.Read(b[:]) // never fails (crypto/rand)
	return base64.RawURLEncoding.EncodeToString(b[:])
}
