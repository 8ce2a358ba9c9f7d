package engine

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// asks notes which kinds a worker takes; none: any. It reports whether that is news.
func (q *pullQueue) asks(kinds []string, now time.Time) (news bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if now.Sub(q.askedAt) >= kindsKeep { // who starts with this one may still have to ask
		q.strayAt = now.Add(strayEvery)
	}
	q.askedAt = now
	if len(kinds) == 0 || len(q.asked) >= kindsAsked {
		news = now.Sub(q.askedAny) >= kindsKeep
		q.askedAny = now
		clear(q.asked)
		return news
	}
	if q.asked == nil {
		q.asked = make(map[string]time.Time)
	}
	for _, kind := range kinds {
		news = news || now.Sub(q.asked[kind]) >= kindsKeep
		q.asked[kind] = now
	}
	return news
}

// addQueues adds the queues that workers pulled from.
func (p *Puller) addQueues(queues []string) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.AppendSeq(queues, maps.Keys(p.queues))
}

// addHandled adds what workers asked for of late, or hold, to what is handled of a queue
// here. It reports false if there is no such worker.
func (p *Puller) addHandled(h *handled, queue string, now time.Time) (found bool) {
	add := func(kinds ...string) {
		h.add(kinds, len(kinds) == 0)
		found = true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	q := p.queues[queue]
	if q == nil {
		return false
	}
	claims := make(map[*string]struct{}) // the messages of one claim share their kinds
	for _, one := range p.held {
		if one.q != q {
			continue
		}
		if len(one.kinds) > 0 {
			if _, seen := claims[&one.kinds[0]]; seen {
				continue
			}
			claims[&one.kinds[0]] = struct{}{}
		}
		add(one.kinds...)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if now.Sub(q.askedAny) < kindsKeep {
		add()
	}
	for kind, at := range q.asked {
		if now.Sub(at) < kindsKeep {
			add(kind)
		} else {
			delete(q.asked, kind)
		}
	}
	return found
}

// endStrays fails, once a minute while workers ask for kinds, what nobody asks for.
func (p *Puller) endStrays(q *pullQueue, now time.Time) {
	if !q.due(&q.strayAt, now, strayEvery) {
		return
	}
	known, all, err := p.e.handledAnywhere(q.queue)
	if err != nil || all {
		return // the next turn asks again
	}
	claims := []driver.ClaimRequest{{Isolated: true, Max: 1}}
	for lane := range redrive.LaneFresh + redrive.Lane(driver.Lanes) {
		claims = append(claims, driver.ClaimRequest{Lane: lane, Max: p.store.Caps().Most(pullChunk)})
	}
	for i := range claims {
		req := &claims[i]
		req.Queue, req.Lease, req.Instance = q.queue, DefaultLease, p.e.opts.Instance
		for more := true; more && time.Since(now) < strayTime; {
			if more, err = p.endStray(q, *req, known, now); err != nil {
				p.e.log.LogAttrs(p.e.base, slog.LevelError, "claim failed", slog.String("queue", q.queue), slog.Any("error", err))
				return
			}
		}
	}
}

// endStray fails what a claim finds of kinds but the known ones, and reports whether there
// may be more.
func (p *Puller) endStray(q *pullQueue, req driver.ClaimRequest, known []string, now time.Time) (more bool, err error) {
	g := new(grants)
	granted := q.reserve(g, &noGates, now, req.Lane, req.Max)
	if granted == 0 {
		return false, nil
	}
	req.Max, req.Kinds, req.ExceptIDs, req.ExceptKinds = granted, g.kinds, g.exceptIDs, slices.Concat(g.exceptKinds, known)
	_, err = q.claimGranted(g, granted, func() ([]redrive.Delivery, error) {
		ds, err := p.store.Claim(p.e.run, req)
		if err != nil {
			return nil, err
		}
		more = len(ds) == granted
		fit, ended := p.split(q, ds, now)
		for i := range fit {
			ended = append(ended, p.unrouted(q, &fit[i], now))
		}
		return nil, p.end(ended) // the gates learn nothing: it says nothing of a target
	})
	return more, err
}

// unrouted settles a message that nobody asks for, as if a handler had not known it.
func (p *Puller) unrouted(q *pullQueue, d *redrive.Delivery, now time.Time) driver.Settlement {
	policy, err := p.policy(d), fmt.Errorf("%w %q", redrive.ErrNoHandler, d.Kind)
	s, _ := decide(&ended{d: d, policy: policy, err: err, now: d.LeasedAt, random: randomShare,
		failure: func(reason redrive.Reason) *redrive.Failure {
			return p.failure(&pulled{d: *d, q: q, began: now}, err, nil, policy, reason, now)
		}})
	q.unknown.note(p.e, d, &s, now)
	p.e.observe(&Observation{Occasion: OnEnd, Queue: d.Queue, Delivery: d, Settlement: &s, Err: err})
	p.conclude(d, &s, err)
	return s
}
