package guard

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/errname"
)

// HeaderSentTo names the only provider that a put-off request may be sent to, because
// it may have seen it.
const HeaderSentTo = "guard-sent-to"

// Why a request was put off.
const (
	reasonRefused = "refused" // no provider took it
	reasonFailed  = "failed"  // those that took it failed
	reasonOrder   = "order"   // one of its key waits
)

// publishAgain is the wait before a publish of unknown outcome is repeated.
const publishAgain = 50 * time.Millisecond

// putOff makes a request durable and returns the ticket for it.
func (g *Guard[Req, Resp]) putOff(ctx context.Context, req Req, d Deferral, sentTo, reason string, last error) (Result[Resp], error) {
	var none Result[Resp]
	if g.cfg.Sink == nil || d.Forbidden {
		return none, joined(ErrUnavailable, last)
	}
	m, err := g.message(req, d, sentTo)
	if err != nil {
		return none, err
	}
	if d.Key != "" {
		g.keys.add(d.Key, m.ID)
	}
	if err := g.publish(ctx, m, d.Repeat == RepeatNever && g.beside() && !g.cfg.Source.Caps().Remembers); err != nil {
		if d.Key != "" {
			g.keys.done(d.Key)
		}
		g.deferred.add("refused by the queue")
		return none, joined(fmt.Errorf("%w: %w", ErrNotQueued, err), last)
	}
	g.deferred.add(reason)
	g.event(Event{Guard: g.cfg.Name, At: time.Now(), Deferred: m.Ref(), Reason: reason})
	return Result[Resp]{Ticket: g.published(m.ID)}, nil
}

func joined(err, last error) error {
	if last == nil {
		return err
	}
	return errors.Join(err, last)
}

// message is a request as it waits. Its id is chosen here, so that publishing it again
// after an unknown outcome does not double it, and so that the store remembers it.
func (g *Guard[Req, Resp]) message(req Req, d Deferral, sentTo string) (redrive.Message, error) {
	body, err := g.cfg.Requests.Encode(req)
	if err != nil {
		return redrive.Message{}, redrive.Permanent(fmt.Errorf("guard %s: the request cannot be encoded: %w", g.cfg.Name, err))
	}
	m := redrive.Message{ID: d.ID, Queue: g.cfg.Queue, Kind: "guard." + g.cfg.Name, Key: d.Key, Body: body, ReplyTo: d.ReplyTo}
	if m.ID == "" {
		m.ID = redrive.NewID()
	}
	if d.TTL > 0 {
		m.ExpiresAt = time.Now().Add(d.TTL)
	}
	if sentTo != "" && d.Repeat == RepeatSame {
		m.Headers.Add(HeaderSentTo, sentTo)
	}
	return m, nil
}

// publish makes a message durable. The caller's deadline does not count: it may be
// what the provider has used up. With once it is not repeated after an unknown outcome,
// as a sink that remembers no ids would have it twice.
func (g *Guard[Req, Resp]) publish(ctx context.Context, m redrive.Message, once bool) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), queueTimeout)
	defer cancel()
	for {
		err := driver.FirstError(g.cfg.Sink.Publish(ctx, []redrive.Message{m}))
		switch {
		case err == nil, errors.Is(err, redrive.ErrDuplicate):
			return nil
		case once, !errors.Is(err, redrive.ErrUnknown):
			return err
		}
		again := time.NewTimer(publishAgain)
		select {
		case <-ctx.Done():
			again.Stop()
			return err
		case <-again.C:
		}
	}
}

// keepUncertain keeps a request of unknown effect as a dead letter and returns what
// the caller learns it.
func (g *Guard[Req, Resp]) keepUncertain(ctx context.Context, req Req, d Deferral, sentTo string, cause error) error {
	e := &UncertainError{Provider: sentTo, Err: cause}
	if g.cfg.Store == nil {
		return e
	}
	m, err := g.message(req, d, sentTo)
	if err != nil {
		e.Err = errors.Join(cause, err)
		return e
	}
	f := &redrive.Failure{At: time.Now(), Attempt: 1, Reason: redrive.ReasonUncertain, Types: errname.Chain(cause), Message: cause.Error(),
		Service: g.cfg.Name, Config: redrive.FailureConfig{Target: sentTo, Timeout: g.byName[sentTo].Timeout}}
	f.Clean()
	f.Signature = driver.Signature(f)
	entry := redrive.Entry{Message: m, State: redrive.StateDead, Attempts: 1, Reason: redrive.ReasonUncertain}
	entry.History.Record(f, true)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), queueTimeout)
	defer cancel()
	errs, err := g.cfg.Store.Apply(ctx, driver.Batch{Put: []redrive.Entry{entry}})
	if err == nil {
		err = driver.FirstError(errs)
	}
	if err != nil && !errors.Is(err, redrive.ErrDuplicate) {
		e.Err = errors.Join(cause, fmt.Errorf("%w: %w", ErrNotQueued, err))
		return e
	}
	e.Kept = m.Ref()
	g.deferred.add("uncertain")
	return e
}
