package rabbitmq

import (
	"context"
	"fmt"
	"slices"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// group is what one call settles.
type group struct {
	batch  []driver.Settlement
	errs   []error
	moves  []int // their messages are published before they are acknowledged
	acks   []int
	reject []int
}

// Settle implements driver.Source.
func (s *Source) Settle(ctx context.Context, batch []driver.Settlement) []error {
	g := &group{batch: batch, errs: make([]error, len(batch))}
	s.sort(g)
	if len(g.moves) > 0 && !s.inTx() {
		s.move(ctx, g)
	}
	if len(g.acks)+len(g.reject)+len(g.moves) > 0 {
		s.acknowledge(ctx, g)
	}
	return g.errs
}

// sort decides what is to be done with each, and gives back at once.
func (s *Source) sort(g *group) {
	s.mu.Lock()
	defer s.mu.Unlock()
	released := false
	for i := range g.batch {
		t := &g.batch[i]
		it, err := s.heldLocked(&t.Receipt)
		if err == nil {
			err = t.Validate()
		}
		switch {
		case err != nil:
			g.errs[i] = err
		case len(t.Emit) > 0 || t.Edit != nil:
			g.errs[i] = unsupported("emits and edits")
		case t.Outcome == redrive.OutcomeDone || t.Outcome == redrive.OutcomeDrop:
			g.acks = append(g.acks, i)
		case t.Outcome == redrive.OutcomeRelease && t.After == 0 && t.Failure == nil:
			s.releaseLocked(it)
			released = true
		case !s.o.Native:
			g.errs[i] = unsupported(t.Outcome.String())
		case t.Outcome == redrive.OutcomeDead && s.a.dead == DeadDLX:
			g.reject = append(g.reject, i)
		case t.Outcome == redrive.OutcomeDead || (t.Outcome == redrive.OutcomeRetry || t.Outcome == redrive.OutcomeRelease) && t.After <= MaxDelay:
			g.moves = append(g.moves, i)
		default:
			g.errs[i] = unsupported(t.Outcome.String())
		}
	}
	if released {
		s.changeLocked()
	}
}

func unsupported(what string) error { return fmt.Errorf("%s: %w", what, redrive.ErrUnsupported) }

// releaseLocked puts a message back where it was. It stays unacknowledged: given back to
// the broker, it would come again at once and count there.
func (s *Source) releaseLocked(it *item) {
	delete(s.inflight, it.d.DeliveryTag)
	it.token = 0
	lane := laneOf(&it.d)
	b := s.buffer[lane]
	at, _ := slices.BinarySearchFunc(b, it.d.DeliveryTag, func(b *item, tag uint64) int {
		return int(b.d.DeliveryTag) - int(tag) //nolint:gosec // tags count up from 1
	})
	s.buffer[lane] = slices.Insert(b, at, it)
}

// acknowledge writes the acknowledgements of a group, one group at a time, and waits
// until the broker's channel has taken them.
func (s *Source) acknowledge(ctx context.Context, g *group) {
	fail := func(err error) {
		for _, items := range [][]int{g.acks, g.reject, g.moves} {
			for _, i := range items {
				if g.errs[i] == nil {
					g.errs[i] = err
				}
			}
		}
	}
	select {
	case s.settling <- struct{}{}:
	case <-ctx.Done():
		fail(ctx.Err())
		return
	}
	w := s.letGo(g)
	ended := make(chan error, 1)
	go func() { // the client's calls ignore the context
		ended <- w.carryOut()
		<-s.settling
	}()
	select {
	case err := <-ended:
		if err != nil {
			fail(fmt.Errorf("%w: acknowledge: %w", redrive.ErrUnknown, err))
		}
	case <-ctx.Done():
		fail(fmt.Errorf("%w: %w", redrive.ErrUnknown, ctx.Err()))
	}
}

// work is what is written to a channel.
type work struct {
	n      *session // nil: nothing
	reject []uint64
	upTo   uint64 // 0: none
	single []uint64

	prefetch int
	tx       bool
	back     func(amqp.Return) error // with tx: takes a message that no queue took
	sends    []outgoing              // with tx: in the same transaction
}

// letGo takes what is settled out of what is in flight.
func (s *Source) letGo(g *group) work {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := work{n: s.session, prefetch: s.a.prefetch, tx: s.inTx(), back: s.putBack}
	take := func(items []int) (of []uint64) {
		for _, i := range items {
			if g.errs[i] != nil {
				continue
			}
			it, err := s.heldLocked(&g.batch[i].Receipt) // the channel may have ended meanwhile
			if err != nil {
				g.errs[i] = err
				continue
			}
			delete(s.inflight, it.d.DeliveryTag)
			of = append(of, it.d.DeliveryTag)
			if w.tx && g.batch[i].Outcome != redrive.OutcomeDone && g.batch[i].Outcome != redrive.OutcomeDrop {
				w.sends = append(w.sends, s.moved(it, &g.batch[i]))
			}
		}
		return of
	}
	w.reject = take(g.reject)
	acked := append(take(g.moves), take(g.acks)...)
	if len(acked)+len(w.reject) == 0 {
		return work{}
	}
	w.upTo, w.single = w.n.tags.finish(acked, w.reject)
	return w
}

// carryOut writes rejections before acknowledgements: one of these may stand for all up
// to its tag. The exchange at the end is answered when the channel has taken the rest.
func (w *work) carryOut() error {
	if w.n == nil {
		return nil
	}
	if err := w.send(); err != nil {
		return err
	}
	ch := w.n.ch
	for _, tag := range w.reject {
		if err := ch.Reject(tag, false); err != nil {
			return err
		}
	}
	if w.upTo > 0 {
		if err := ch.Ack(w.upTo, true); err != nil {
			return err
		}
	}
	for _, tag := range w.single {
		if err := ch.Ack(tag, false); err != nil {
			return err
		}
	}
	if w.tx {
		return w.commit()
	}
	return ch.Qos(w.prefetch, 0, false)
}
