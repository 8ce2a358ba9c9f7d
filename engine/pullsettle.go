package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// PullResult is what a worker says became of a message.
type PullResult struct {
	Receipt redrive.Receipt
	// Outcome is Done, Retry, Release, Dead or Repeat. A Retry becomes Dead when the
	// queue's policy says so: its attempts are used up, or its table calls the failure
	// permanent.
	Outcome redrive.Outcome
	// After is the floor of a Retry's backoff, or the delay of Release and Repeat.
	After time.Duration
	// Reason says why it is Dead. Defaults to permanent.
	Reason redrive.Reason
	// Failure is what went wrong, for Retry, Release and Dead: Types, Message, Stack,
	// Details (http.status among them), and where: Host, IP, PID, Service, Version,
	// Env. The rest is filled in.
	Failure *redrive.Failure
	// Emit becomes durable with the settlement, for Done and Repeat.
	Emit []redrive.Message
	// Reply is the body and headers of the result, if the message has a ReplyTo.
	Reply *redrive.Message
}

// Pulled is what became of one result.
type Pulled struct {
	Outcome redrive.Outcome // as settled: Dead where a Retry had none left
	Reason  redrive.Reason  // of Dead
	After   time.Duration   // until it is due again, for Retry, Release and Repeat
	Err     error           // why nothing was settled; as of [driver.Source.Settle]
}

// pulledError is a failure that a worker reported, as the error of its attempt.
type pulledError struct{ f *redrive.Failure }

func (e *pulledError) Error() string { return e.f.Message }

// ErrorTypes returns the names that the error had where it was raised; package errname
// asks for them.
func (e *pulledError) ErrorTypes() []string {
	if len(e.f.Types) == 0 {
		return []string{"error"}
	}
	return e.f.Types
}

// FailureDetails implements DetailedError.
func (e *pulledError) FailureDetails() map[string]string { return e.f.Details }

// StackTrace returns where it was raised.
func (e *pulledError) StackTrace() string { return e.f.Stack }

// Timeout reports whether the worker ran out of time.
func (e *pulledError) Timeout() bool { return e.f.Details["timeout"] == "true" }

// pulledStatus is a pulledError with an HTTP status.
type pulledStatus struct {
	*pulledError
	status int
}

// HTTPStatus implements StatusError.
func (e *pulledStatus) HTTPStatus() int { return e.status }

// Unwrap returns the failure.
func (e *pulledStatus) Unwrap() error { return e.pulledError }

// Settle carries out what workers say. A result that fails for a passing reason may be
// repeated under the same receipt.
func (p *Puller) Settle(ctx context.Context, results []PullResult) []Pulled {
	out := make([]Pulled, len(results))
	known, err := p.lookUp(ctx, results)
	if err != nil {
		for i := range out {
			out[i].Err = err
		}
		return out
	}
	now := time.Now()
	var batch []driver.Settlement
	var at []int
	for i := range results {
		r := &results[i]
		if out[i].Err = r.check(); out[i].Err == nil {
			out[i].Err = p.backlogged(r)
		}
		if out[i].Err == nil && known[i] == nil {
			out[i].Err = &redrive.Error{Op: "settle", Queue: r.Receipt.Queue, ID: r.Receipt.ID, Err: redrive.ErrNotFound, Hint: "it was settled, or its lease ran out and another settled it"}
		}
		if out[i].Err != nil {
			continue
		}
		s := p.decide(known[i], r, now)
		out[i] = Pulled{Outcome: s.Outcome, Reason: s.Reason, After: s.After}
		batch, at = append(batch, s), append(at, i)
	}
	if len(batch) == 0 {
		return out
	}
	began := time.Now()
	errs := p.store.Settle(ctx, batch)
	p.e.observe(&Observation{Occasion: OnSettleGroup, Count: len(batch), Duration: time.Since(began)})
	for j, i := range at {
		var err error
		if errs != nil {
			err = errs[j]
		}
		if (errors.Is(err, redrive.ErrInvalid) || errors.Is(err, redrive.ErrConflict)) && len(batch[j].Emit) > len(results[i].Emit) {
			err = p.withoutResult(ctx, known[i], &batch[j], len(results[i].Emit), err)
		}
		p.settled(known[i], &batch[j], err, now)
		if err != nil {
			out[i] = Pulled{Err: &redrive.Error{Op: "settle", Queue: results[i].Receipt.Queue, ID: results[i].Receipt.ID, Err: err}}
		}
	}
	return out
}

// withoutResult settles again without the message's result, which may be what cannot be
// published: the worker has no part in it.
func (p *Puller) withoutResult(ctx context.Context, one *pulled, s *driver.Settlement, emits int, why error) error {
	s.Emit = s.Emit[:emits]
	err := driver.FirstError(p.store.Settle(ctx, []driver.Settlement{*s}))
	if err == nil {
		p.e.resultRefused(&one.d, why)
	}
	return err
}

// check refuses what a worker may not say.
func (r *PullResult) check() error {
	bad := func(what string) error {
		return &redrive.Error{Op: "settle", Queue: r.Receipt.Queue, ID: r.Receipt.ID, Err: fmt.Errorf("%w result: %s", redrive.ErrInvalid, what)}
	}
	switch {
	case r.Outcome < redrive.OutcomeDone || r.Outcome > redrive.OutcomeRepeat:
		return bad("use done, retry, release, dead or repeat")
	case r.After < 0:
		return bad("a negative delay")
	case r.Reason > driver.LastReason:
		return bad("an unknown reason")
	case len(r.Emit) > MaxPull:
		return bad(fmt.Sprintf("more than %d messages to emit", MaxPull))
	case len(r.Emit) > 0 && r.Outcome != redrive.OutcomeDone && r.Outcome != redrive.OutcomeRepeat:
		return bad("only what is done emits messages")
	}
	for i := range r.Emit {
		if err := r.Emit[i].Validate(); err != nil {
			return err
		}
	}
	return nil
}

// backlogged refuses emits into queues above their limit.
func (p *Puller) backlogged(r *PullResult) error {
	w := p.e.opts.Backlog
	if w == nil {
		return nil
	}
	for i := range r.Emit {
		if level, _ := w.Level(r.Emit[i].Queue); level == driver.LevelRefused {
			return &redrive.Error{Op: "emit", Queue: r.Emit[i].Queue, Err: redrive.ErrBacklogged}
		}
	}
	return nil
}

// lookUp returns what is known of the messages: from memory, or from the store if
// another process delivered them. An element is nil for a message that is gone.
func (p *Puller) lookUp(ctx context.Context, results []PullResult) ([]*pulled, error) {
	all := make([]*pulled, len(results))
	var refs []redrive.Ref
	var at []int
	p.mu.Lock()
	for i := range results {
		if all[i] = p.held[results[i].Receipt]; all[i] == nil {
			refs, at = append(refs, results[i].Receipt.Ref), append(at, i)
		}
	}
	p.mu.Unlock()
	if len(refs) == 0 {
		return all, nil
	}
	entries, err := p.store.Get(ctx, refs)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	for j, i := range at {
		e := entries[j]
		if e == nil {
			continue
		}
		d := redrive.Delivery{Message: e.Message, Lane: e.Lane, Attempt: e.Attempts, Failures: e.History.Count, Crashes: e.Crashes,
			Suspect: e.Suspect, LeasedAt: now, Receipt: results[i].Receipt}
		d.Body = nil
		all[i] = &pulled{d: d, q: p.queue(d.Queue), began: now}
	}
	return all, nil
}

// ReplyTo returns where the result of a claimed message goes; "" for a message that is
// gone. That the claim still holds is seen when it is settled.
func (p *Puller) ReplyTo(ctx context.Context, claimed redrive.Receipt) (string, error) {
	known, err := p.lookUp(ctx, []PullResult{{Receipt: claimed}})
	if err != nil || known[0] == nil {
		return "", err
	}
	return known[0].d.ReplyTo, nil
}

// decide makes a settlement of a result, by the engine's own rules.
func (p *Puller) decide(one *pulled, r *PullResult, now time.Time) driver.Settlement {
	policy := p.policy(&one.d)
	err := r.err()
	in := ended{d: &one.d, policy: policy, err: err, now: one.d.LeasedAt.Add(now.Sub(one.began)), random: randomShare,
		uncounted: r.Outcome == redrive.OutcomeRetry && one.q.breaker.uncounted(&one.d),
		failure: func(reason redrive.Reason) *redrive.Failure {
			return p.failure(one, err, r.Failure, policy, reason, now)
		}}
	s, _ := decide(&in)
	if r.Outcome == redrive.OutcomeRelease && r.Failure == nil {
		s.Failure = nil
	}
	if s.Outcome == redrive.OutcomeDone || s.Outcome == redrive.OutcomeRepeat {
		s.Emit = r.Emit
		for i := range s.Emit {
			if s.Emit[i].ID == "" {
				s.Emit[i].ID = driver.DeriveID("emit", one.d.Queue, one.d.ID, strconv.Itoa(one.d.Generation), strconv.Itoa(i))
			}
		}
	}
	var answer *reply
	if r.Reply != nil {
		answer = &reply{r.Reply.Body, r.Reply.Headers}
	}
	p.e.addResult(&one.d, &s, answer)
	return s
}

// err is the result as a handler would have returned it.
func (r *PullResult) err() error {
	f := r.Failure
	if f == nil {
		f = &redrive.Failure{Message: "the worker gave no reason"}
	}
	var err error = &pulledError{f}
	if status, bad := strconv.Atoi(f.Details[driver.DetailStatus]); bad == nil {
		err = &pulledStatus{&pulledError{f}, status}
	}
	switch r.Outcome {
	case redrive.OutcomeRetry:
		return redrive.RetryAfter(err, r.After)
	case redrive.OutcomeRelease:
		return redrive.Uncounted(err, r.After)
	case redrive.OutcomeDead:
		return redrive.PermanentAs(err, cmp.Or(r.Reason, redrive.ReasonPermanent))
	case redrive.OutcomeRepeat:
		return redrive.RepeatAfter(r.After)
	}
	return nil
}

func (p *Puller) policy(d *redrive.Delivery) *redrive.Policy {
	given := p.o.Policies(d.Queue)
	if given == nil {
		return &defaultPolicy
	}
	q := p.queue(d.Queue)
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.given != given {
		q.given, q.policies = given, given.compile()
	}
	return q.policies.of(&d.Message)
}

// failure completes the failure history that a worker reported.
func (p *Puller) failure(one *pulled, err error, reported *redrive.Failure, policy *redrive.Policy, reason redrive.Reason, now time.Time) *redrive.Failure {
	f := p.e.identity.failure(p.e.base, &one.d, err, now, now.Sub(one.began), "", policy, "", p.o.Extractor)
	f.Reason = reason
	if reported == nil {
		return f
	}
	f.Host, f.IP = cmp.Or(reported.Host, f.Host), cmp.Or(reported.IP, f.IP)
	f.PID = cmp.Or(reported.PID, f.PID)
	f.Service, f.Version, f.Env = cmp.Or(reported.Service, one.worker, f.Service), cmp.Or(reported.Version, f.Version), cmp.Or(reported.Env, f.Env)
	f.Clean()
	return f
}

// split sorts out what must not be tried, with its settlement.
func (p *Puller) split(q *pullQueue, ds []redrive.Delivery, now time.Time) (fit []redrive.Delivery, ended []driver.Settlement) {
	for i := range ds {
		d := &ds[i]
		policy := p.policy(d)
		s, bad := unfit(d, policy, func(err error, reason redrive.Reason) *redrive.Failure {
			return p.failure(&pulled{d: *d, q: q, began: now}, err, nil, policy, reason, now)
		})
		if !bad {
			fit = append(fit, *d)
			continue
		}
		p.conclude(d, &s, nil)
		ended = append(ended, s)
	}
	return fit, ended
}

// conclude completes the settlement of what was not claimed, and tells of it.
func (p *Puller) conclude(d *redrive.Delivery, s *driver.Settlement, err error) {
	p.e.addResult(d, s, nil)
	p.e.logEnd(p.e.base, d, s, err, 0)
	p.e.observe(&Observation{Occasion: OnSettled, Queue: d.Queue, Delivery: d, Settlement: s})
}

// end settles what is not delivered. What fails stays leased, and comes again.
func (p *Puller) end(ended []driver.Settlement) error {
	if len(ended) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(p.e.base), settleTimeout)
	defer cancel()
	if err := driver.FirstError(p.store.Settle(ctx, ended)); err != nil && !errors.Is(err, redrive.ErrLeaseLost) {
		return &redrive.Error{Op: "settle", Queue: ended[0].Receipt.Queue, Err: err}
	}
	return nil
}

// settled tells gates, log and observer about a result, and forgets the claim if it is
// over.
func (p *Puller) settled(one *pulled, s *driver.Settlement, err error, now time.Time) {
	d := &one.d
	switch {
	case err == nil:
	case errors.Is(err, redrive.ErrLeaseLost), errors.Is(err, redrive.ErrNotFound):
		if p.forget(d.Receipt) != nil {
			one.q.reportGates(&noGates, d, nil, now)
		}
		p.e.observe(&Observation{Occasion: OnLeaseLost, Queue: d.Queue, Delivery: d, Settlement: s, Err: err})
		return
	default: // the worker repeats it
		return
	}
	p.forget(d.Receipt)
	one.q.reportGates(&noGates, d, s, now)
	var failed error
	if s.Failure != nil {
		failed = errors.New(s.Failure.Message)
	}
	p.e.observe(&Observation{Occasion: OnEnd, Queue: d.Queue, Delivery: d, Settlement: s, Err: failed, Duration: now.Sub(one.began)})
	p.e.observe(&Observation{Occasion: OnSettled, Queue: d.Queue, Delivery: d, Settlement: s})
	p.e.logEnd(p.e.base, d, s, failed, now.Sub(one.began), slog.String("worker", one.worker))
}

// Extend makes leases run for another lease from now; the results are those of
// [driver.Source.Extend].
func (p *Puller) Extend(ctx context.Context, receipts []redrive.Receipt, lease time.Duration) []error {
	lease = min(max(lease, minLease), MaxPullLease)
	errs := p.store.Extend(ctx, receipts, lease)
	until := time.Now().Add(lease)
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, r := range receipts {
		if one := p.held[r]; one != nil && (errs == nil || errs[i] == nil) {
			one.until = until
		}
	}
	return errs
}
