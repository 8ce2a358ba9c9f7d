package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/text"
)

// finish is called when a handler has returned.
func (c *consumer) finish(a *attempt, err error) {
	c.conclude(a, err, false)
	c.free(a)
}

// free gives back the slot of a handler that returned.
func (c *consumer) free(a *attempt) {
	a.end()
	c.mu.Lock()
	c.busy--
	if !a.deadline.IsZero() { // a worker took it
		c.running--
		c.pace.ended++
		if a.endedAt.After(c.pace.endedAt) {
			c.pace.endedAt = a.endedAt
		}
	}
	c.inflight[a.d.Lane]--
	c.leaveKindLocked(a)
	if a.stuck {
		c.stuck--
	}
	if c.hasWorkLocked() && c.roomLocked(c.options(), a.endedAt) > 0 {
		c.wakeLocked()
	}
	a.returned = true
	a.forgetLocked()
	c.yieldLocked()
	idle := c.idleLocked()
	c.mu.Unlock()
	if idle {
		c.idle.Broadcast()
	}
}

// conclude decides what becomes of an attempt, once: when its handler returned, was
// given up, or the shutdown lost patience. What comes later has no effect. An
// attempt whose settlement was decided before it ran passes through with it.
func (c *consumer) conclude(a *attempt, err error, stuck bool) {
	now := time.Now()
	c.mu.Lock()
	if a.state != attemptRunning {
		c.mu.Unlock()
		return
	}
	a.state, a.endedAt = attemptSettling, now
	c.settling++
	if stuck { // not before: it counts as idle, but its settlement does not
		a.stuck = true
		c.stuck++
	}
	lost := a.lost
	c.mu.Unlock()

	settle := a.settle.Outcome != 0
	if !settle {
		a.settle, settle = c.decided(a, err, lost, now)
	}
	c.report(a, err, settle, now)
	if !settle {
		c.settled(a, nil)
		return
	}
	c.addEmits(a)
	c.deadLetter(a)
	a.f.settler.add(a)
}

// decided asks decide. A classifier, a backoff or an error's own method that panics
// makes the attempt a failed one under the default policy, not the process a dead one.
func (c *consumer) decided(a *attempt, err error, lost bool, now time.Time) (s driver.Settlement, ok bool) {
	in := ended{d: a.d, policy: a.policy, err: err, now: a.d.LeasedAt.Add(now.Sub(a.began)),
		uncounted: err != nil && c.breaker.uncounted(a.d), lost: lost,
		shutdown: err != nil && errors.Is(context.Cause(a.base), ErrShutdown),
		random:   randomShare,
		failure:  func(r redrive.Reason) *redrive.Failure { return c.failure(a, err, r, now) },
	}
	defer func() {
		r := recover()
		if r == nil {
			return
		}
		safe := defaultPolicy
		safe.Name, safe.MaxAttempts = a.policy.Name, a.policy.MaxAttempts
		p := &redrive.PanicError{Value: fmt.Sprint(r), Stack: string(debug.Stack())}
		in.policy, in.err = &safe, p
		in.failure = func(r redrive.Reason) *redrive.Failure { return c.failure(a, p, r, now) }
		s, ok = decide(&in)
	}()
	return decide(&in)
}

// report tells gates, log and observer how an attempt ended.
func (c *consumer) report(a *attempt, err error, settle bool, now time.Time) {
	defer c.e.recovered("report")
	if err != nil {
		c.e.guard("error", func() { // an error's own methods may panic
			if _, asked := driver.Asked(err); asked { // it runs again, or settled by itself
				err = nil
			}
		})
	}
	s := &a.settle
	if !settle {
		s = nil
	}
	c.e.guard("pause", func() { c.obeyPause(a, err) })
	learned := s
	if s != nil && errors.Is(err, redrive.ErrNoHandler) { // which says nothing of the target
		learned = &driver.Settlement{Receipt: s.Receipt, Outcome: redrive.OutcomeRelease}
		c.unknown.note(c.e, a.d, s, now)
	}
	if a.swept {
		c.sweptGates(a.o, a.d, learned, now)
	} else {
		c.reportGates(a.o, a.d, learned, now)
	}
	if c.e.opts.Observer != nil {
		c.e.observe(&Observation{Occasion: OnEnd, Queue: c.queue, Delivery: a.d, Settlement: s, Err: err, Duration: now.Sub(a.began)})
	}
	c.e.logEnd(a.base, a.d, &a.settle, err, now.Sub(a.began))
}

// obeyPause pauses what the handler's error says.
func (c *consumer) obeyPause(a *attempt, err error) {
	d, ok := driver.PauseOf(err)
	if !ok || a.o != c.options() { // it was the target before
		return
	}
	target := c.options().Target
	if target == "" {
		target = a.d.Kind
	}
	c.pause(target, err.Error(), d, true)
}

// logEnd logs how an attempt ended, of a worker if it is named.
func (e *Engine) logEnd(ctx context.Context, d *redrive.Delivery, s *driver.Settlement, err error, took time.Duration, worker ...slog.Attr) {
	level, what := slog.LevelDebug, "done"
	switch s.Outcome {
	case redrive.OutcomeRetry:
		level, what = slog.LevelInfo, "attempt failed"
	case redrive.OutcomeRelease:
		level, what = slog.LevelDebug, "released"
	case redrive.OutcomeDead:
		level, what = slog.LevelWarn, "dead"
	case redrive.OutcomeDrop:
		level, what = slog.LevelInfo, "dropped"
	}
	if !e.log.Enabled(ctx, level) {
		return
	}
	attrs := append([]slog.Attr{slog.String("queue", d.Queue), slog.String("id", d.ID), slog.Int("attempt", d.Attempt), slog.Duration("took", took)}, worker...)
	if s.Outcome == redrive.OutcomeRetry {
		attrs = append(attrs, slog.Duration("again_in", s.After))
	}
	if s.Reason != 0 {
		attrs = append(attrs, slog.String("reason", s.Reason.String()))
	}
	if err != nil {
		attrs = append(attrs, slog.String("error", text.Clean(err.Error(), 512)))
	} else if s.Failure != nil {
		attrs = append(attrs, slog.String("error", s.Failure.Message))
	}
	e.log.LogAttrs(ctx, level, what, attrs...)
}

// failure describes a failed attempt.
func (c *consumer) failure(a *attempt, err error, r redrive.Reason, now time.Time) *redrive.Failure {
	var stack string
	var s interface{ StackTrace() string }
	if errors.As(err, &s) {
		stack = s.StackTrace()
	}
	f := c.e.identity.failure(a, a.d, err, now, now.Sub(a.began), stack, a.policy, c.options().Target, c.options().Extractor)
	f.Reason = r
	return f
}

// addEmits puts what the handler emitted, and the result that the message's ReplyTo
// asks for, into the settlement.
func (c *consumer) addEmits(a *attempt) {
	a.mu.Lock()
	emits, r := a.emits, a.reply
	a.ended = true // a late Emit is refused
	a.mu.Unlock()
	done := a.settle.Outcome == redrive.OutcomeDone || a.settle.Outcome == redrive.OutcomeRepeat
	if done {
		a.settle.Emit = emits
	}
	if !done {
		r = nil
	}
	c.e.addResult(a.d, &a.settle, r)
}

// addResult adds the result that the message's ReplyTo asks for to a settlement.
func (e *Engine) addResult(d *redrive.Delivery, s *driver.Settlement, r *reply) {
	if r == nil {
		r = new(reply)
	}
	if m, ok := e.opts.Masks.ResultMessage(&d.Message, s.Outcome, s.Reason, s.Failure, r.body); ok {
		m.Headers = append(m.Headers, r.headers...)
		s.Emit = append(s.Emit, m)
	}
}

// resultRefused logs that the result of a message is left out. Its handler or worker has no
// part in it.
func (e *Engine) resultRefused(d *redrive.Delivery, why error) {
	e.log.LogAttrs(e.base, slog.LevelError, "result not published: dropped from the settlement", slog.String("queue", d.Queue),
		slog.String("id", d.ID), slog.String("reply_to", d.ReplyTo), slog.Any("error", why))
}

// deadLetter gives a dead letter to the queue's own sink, if it has one. A source that is
// its own sink takes its own in the settlement.
func (c *consumer) deadLetter(a *attempt) {
	sink := c.options().DeadLetters
	if sink == nil || a.settle.Outcome != redrive.OutcomeDead || a.f.buries(sink) {
		return
	}
	defer c.e.recovered("dead-letter sink")
	e := deadEntry(a.d, &a.settle)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.e.base), settleTimeout)
	defer cancel()
	if err := sink.DeadLetter(ctx, &e); err != nil {
		c.e.log.LogAttrs(ctx, slog.LevelError, "dead-letter sink rejected the message: kept as a dead letter in the store",
			slog.String("queue", c.queue), slog.String("id", a.d.ID), slog.Any("error", err))
		return
	}
	decided := a.settle
	a.buried = &decided
	a.settle.Outcome, a.settle.Reason, a.settle.Failure = redrive.OutcomeDone, 0, nil
}

// deadEntry is a delivery as the dead letter that a settlement makes of it.
func deadEntry(d *redrive.Delivery, s *driver.Settlement) redrive.Entry {
	e := redrive.Entry{Message: d.Message, State: redrive.StateDead, Lane: d.Lane, Attempts: d.Attempt, Crashes: d.Crashes, Reason: s.Reason}
	e.History.Count = d.Failures
	e.History.Record(s.Failure, true)
	return e
}

// emitFailed makes a failed attempt of one whose emits cannot be published. A result
// that cannot be published is left out: the handler has no part in it. It reports
// false if there were no emits, so that nothing was changed.
func (c *consumer) emitFailed(a *attempt, err error) bool {
	if len(a.settle.Emit) == 0 {
		return false
	}
	a.mu.Lock()
	own := len(a.emits) > 0
	a.emits, a.reply = nil, nil
	a.mu.Unlock()
	if !own {
		c.e.resultRefused(a.d, err)
		a.settle.Emit = nil
		return true
	}
	now := time.Now()
	cause := &redrive.Error{Op: "emit", Queue: a.d.Queue, ID: a.d.ID, Err: err}
	if errors.Is(err, redrive.ErrConflict) {
		cause.Hint = "it emits under the id of another message: choose another id, or emit the same body in each attempt"
	}
	err = redrive.Permanent(cause) // another attempt would emit the same
	a.settle, _ = c.decided(a, err, false, now)
	c.addEmits(a)
	return true
}

// settled is called when a settlement is durable, or never will be.
func (c *consumer) settled(a *attempt, err error) {
	if err == nil {
		if c.e.opts.Observer != nil {
			s := &a.settle
			if a.buried != nil {
				s = a.buried // for the queue it is done, but it is dead-lettered
			}
			c.e.observe(&Observation{Occasion: OnSettled, Queue: c.queue, Delivery: a.d, Settlement: s})
		}
	} else if !errors.Is(err, ErrShutdown) {
		c.e.observe(&Observation{Occasion: OnLeaseLost, Queue: c.queue, Delivery: a.d, Settlement: &a.settle, Err: err})
		c.e.log.LogAttrs(a.base, slog.LevelWarn, "lease lost: result discarded", slog.String("queue", c.queue), slog.String("id", a.d.ID), slog.Any("error", err))
	}
	if !a.isolated {
		c.e.isolation.leave(1)
	}
	c.mu.Lock()
	a.state = attemptSettled
	c.settling--
	if a.prev != nil {
		a.prev.next = a.next
	} else {
		c.first = a.next
	}
	if a.next != nil {
		a.next.prev = a.prev
	}
	a.prev, a.next = nil, nil
	a.forgetLocked()
	if a.isolated || c.settling == settlingBound-1 {
		c.wakeLocked()
	}
	c.yieldLocked()
	idle := c.idleLocked()
	c.mu.Unlock()
	if idle {
		c.idle.Broadcast()
	}
}

// forgetLocked lets go of the message when nobody needs it any more, because a batch
// lives as long as the slowest of its attempts.
func (a *attempt) forgetLocked() {
	if a.returned && a.state == attemptSettled {
		a.d.Body, a.d.Headers, a.settle = nil, nil, driver.Settlement{}
		a.mu.Lock()
		a.emits, a.reply = nil, nil
		a.mu.Unlock()
	}
}

// idleLocked reports that nothing is in flight or on its way to the store.
func (c *consumer) idleLocked() bool { return c.busy-c.stuck == 0 && c.settling == 0 && !c.pumping }

func (c *consumer) isIdle() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.idleLocked()
}

// stop claims nothing more.
func (c *consumer) stop() {
	c.mu.Lock()
	c.stopped = true
	if c.timer != nil {
		c.timer.Stop()
	}
	c.yieldLocked()
	waive := !c.pumping // else the pump does
	line := c.beyondLocked(c.options())
	c.mu.Unlock()
	c.giveBackLine(line)
	if waive {
		c.waiveIsolated(time.Now())
	}
}

// yieldLocked gives the process back when the consumer has stopped and no suspect of
// it is isolated any more.
func (c *consumer) yieldLocked() {
	if !c.stopped || c.pumping {
		return
	}
	if held, _ := c.e.isolation.held(c, time.Time{}); !held || c.busy-c.stuck+c.settling == 0 {
		c.e.isolation.release(c)
	}
}

// awaitIdle waits until nothing is in flight.
func (c *consumer) awaitIdle() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for !c.idleLocked() {
		c.idle.Wait()
	}
}

// releaseAll releases what handlers do not give back.
func (c *consumer) releaseAll() {
	c.mu.Lock()
	var running []*attempt
	for a := c.first; a != nil; a = a.next {
		if a.state == attemptRunning {
			running = append(running, a)
		}
	}
	c.mu.Unlock()
	for _, a := range running {
		c.conclude(a, ErrShutdown, true)
	}
	c.idle.Broadcast()
}

func (c *consumer) slots() (slots, stuck int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.options().Concurrency, c.stuck
}

func (c *consumer) status() QueueStatus {
	now := time.Now()
	holds := c.gateHolds(now)
	c.mu.Lock()
	defer c.mu.Unlock()
	return QueueStatus{Queue: c.queue, Holds: c.slotsHoldLocked(holds, now), Slots: c.options().Concurrency, Busy: min(c.busy, c.options().Concurrency), Stuck: c.stuck, Settling: c.settling,
		Breakers: c.breaker.states(), Paused: c.pauses.status(), Refused: c.refused,
		AllRefusedSince: c.breaker.allRefusedSince(now), Unhandled: c.unhandled(now)}
}
