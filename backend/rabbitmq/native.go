package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/native"
)

// Dead is how a dead letter comes to the queue of dead letters at the broker.
type Dead string

// The strategies, by what a failure between the steps leaves.
const (
	// DeadConfirm publishes the message with its failure history, waits for the confirm of a queue
	// that took it, then acknowledges. Nothing is lost; a crash between the two leaves a
	// second dead letter with the same id. This is the default.
	DeadConfirm Dead = "confirm"
	// DeadTx publishes and acknowledges in one transaction of AMQP: a cut of the
	// connection leaves both or none. The broker carries it out queue by queue, so that
	// the death of a node may leave one of the two: a second dead letter, or, where the
	// only the acknowledgement was kept, none.
	DeadTx Dead = "tx"
	// DeadDLX rejects the message, and a quorum queue that is declared for it moves it,
	// at least once. It carries what failed before, not the last failure nor a reason:
	// only the broker's own x-death.
	DeadDLX Dead = "dlx"
)

func (d Dead) caps(c *driver.Caps) {
	c.MaxDelay, c.DeadLetters, c.KeepsHistory = MaxDelay, true, true
	switch d {
	case DeadTx:
		c.Transfer = driver.TransferTransaction
	case DeadDLX:
		c.Transfer = driver.TransferOneStep
	}
}

// inTx reports whether the channel that consumes has transactions.
func (s *Source) inTx() bool { return s.o.Native && s.a.dead == DeadTx }

// moved is what is published in place of a message that failed.
func (s *Source) moved(it *item, t *driver.Settlement) outgoing {
	var d redrive.Delivery
	s.read(it, &d)
	history := native.History{Queue: s.o.Queue, Attempts: d.Attempt, Crashes: d.Crashes}
	if d.History != nil {
		history.History = *d.History
	}
	history.History.Record(t.Failure, t.Outcome != redrive.OutcomeRelease)
	if t.Outcome == redrive.OutcomeRelease {
		history.Attempts--
	}
	from := origin(&d.Message, it.d.Exchange, it.d.RoutingKey, s.a.queue, it.d.Timestamp)
	if d.Origin == s.a.queue { // which the place says
		d.Origin = ""
	}
	if t.Outcome == redrive.OutcomeDead {
		history.Reason, history.DiedAt = t.Reason, time.Now()
		return outgoing{key: s.a.deadQueue, msg: deadLetter(&d.Message, append(from, history.Headers()...)...)}
	}
	return s.delayed(&d.Message, t.After, append(from, history.Headers()...)...)
}

// DeadLetter implements [driver.DeadLetterSink]: it publishes a dead letter that was parked
// in a store meanwhile to the queue of dead letters, whatever the strategy, and returns
// when that is confirmed. It needs [Options.Native].
func (s *Source) DeadLetter(ctx context.Context, e *redrive.Entry) error {
	if !s.o.Native {
		return fmt.Errorf("native dead letters: %w", redrive.ErrUnsupported)
	}
	m := e.Message
	m.Delay, m.DeliverAt = 0, time.Time{}
	m.Headers = m.Headers.Clone()
	history := native.History{Queue: e.Queue, Attempts: e.Attempts, Crashes: e.Crashes, History: e.History, Reason: e.Reason, DiedAt: e.DiedAt}
	if history.DiedAt.IsZero() {
		history.DiedAt = time.Now()
	}
	return driver.FirstError(s.out.publish(ctx, []outgoing{{key: s.a.deadQueue, msg: s.letter(&m, &history)}}))
}

// letter is a dead letter of the store as the queue of dead letters has it.
func (s *Source) letter(m *redrive.Message, history *native.History) amqp.Publishing {
	from := origin(m, "", s.a.queue, s.a.queue, m.PublishedAt)
	if from == nil || formOf(m) != nil || m.Origin == s.a.queue { // attached, or our own: the place says where from
		m.Origin = ""
	}
	return deadLetter(m, append(from, history.Headers()...)...)
}

// origin returns headers that say where a message came from, unless it says so itself. They stand
// beside its own, whose order is kept.
func origin(m *redrive.Message, exchange, key, queue string, at time.Time) redrive.Headers {
	o, known := native.ReadOriginal(m.Headers)
	if known {
		return nil
	}
	o.Exchange, o.RoutingKey, o.Queue, o.At = exchange, key, queue, at
	return o.Headers()
}

// move publishes what goes elsewhere; what was confirmed is then acknowledged.
func (s *Source) move(ctx context.Context, g *group) {
	var sends []outgoing
	var of []int
	s.mu.Lock()
	for _, i := range g.moves {
		it, err := s.heldLocked(&g.batch[i].Receipt)
		if err != nil {
			g.errs[i] = err
			continue
		}
		sends, of = append(sends, s.moved(it, &g.batch[i])), append(of, i)
	}
	s.mu.Unlock()
	for j, err := range s.out.publish(ctx, sends) {
		g.errs[of[j]] = err
	}
}

// send publishes in a transaction. In one, a message that no queue takes comes back only
// when the acknowledgement has had its effect: so the queue is looked for before.
func (w *work) send() error {
	seen := make(map[string]bool)
	for i := range w.sends {
		o := &w.sends[i]
		if target := o.exchange + "\x00" + o.key; o.exchange == "" && !seen[target] {
			seen[target] = true
			if _, err := w.n.ch.QueueDeclarePassive(o.key, true, false, false, false, nil); err != nil {
				return err // the channel is closed, and everything comes again
			}
		}
		if err := w.n.ch.PublishWithContext(context.Background(), o.exchange, o.key, true, false, o.msg); err != nil {
			return err
		}
	}
	return nil
}

// commit ends a transaction. Messages that no queue took are put back.
func (w *work) commit() error {
	if err := w.n.ch.TxCommit(); err != nil {
		return err
	}
	var errs []error
	for {
		select {
		case r, ok := <-w.n.returns:
			if !ok {
				return errors.Join(errs...)
			}
			errs = append(errs, fmt.Errorf("%w: %s", errUnroutable, r.RoutingKey), w.back(r))
		default:
			return errors.Join(errs...)
		}
	}
}

// putBack publishes a returned message to the queue that it came from.
func (s *Source) putBack(r amqp.Return) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	p := amqp.Publishing{
		Headers: r.Headers, ContentType: r.ContentType, ContentEncoding: r.ContentEncoding, DeliveryMode: r.DeliveryMode, Priority: r.Priority,
		CorrelationId: r.CorrelationId, MessageId: r.MessageId, Timestamp: r.Timestamp, Type: r.Type, AppId: r.AppId, Body: r.Body,
	}
	return driver.FirstError(s.out.publish(ctx, []outgoing{{key: s.a.queue, msg: p}}))
}
