package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// outgoing is a message for an exchange.
type outgoing struct {
	exchange, key string
	msg           amqp.Publishing
}

var errUnroutable = errors.New("no queue took the message")

// publisher publishes on a connection of its own: the broker stops reading from one that
// publishes when it runs out of memory, and acknowledgements must go on. It connects when
// there is something to publish.
type publisher struct {
	a    address
	lock chan struct{} // holds a value while something is written

	mu     sync.Mutex
	outlet *outlet
	closed bool
}

// outlet is one channel that publishes.
type outlet struct {
	conn    *amqp.Connection
	ch      *amqp.Channel
	blocked atomic.Bool
	heard   atomic.Int64  // when the newest confirm came, in nanoseconds since 1970
	ended   chan struct{} // closed when the channel is over
	last    uint64        // number of the newest publish; under the publisher's lock

	mu      sync.Mutex
	pending map[uint64]*slot
	err     error // why the channel is over
	over    bool
}

// slot is a message that waits for its confirm.
type slot struct {
	of            *sending
	i             int
	id            string
	exchange, key string
	returned      bool
}

// sending is one call of publish.
type sending struct {
	mu   sync.Mutex
	errs []error
	left int
	done chan struct{}
}

func (b *sending) settle(i int, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.errs[i] = err
	if b.left--; b.left == 0 {
		close(b.done)
	}
}

// publish returns when each message is confirmed or refused.
func (p *publisher) publish(ctx context.Context, all []outgoing) []error {
	if len(all) == 0 {
		return nil
	}
	b := &sending{errs: make([]error, len(all)), left: len(all), done: make(chan struct{})}
	fail := func(err error) []error {
		errs := make([]error, len(all))
		for i := range errs {
			errs[i] = err
		}
		return errs
	}
	select {
	case p.lock <- struct{}{}:
	case <-ctx.Done():
		return fail(ctx.Err())
	}
	o, err := p.open(ctx)
	if err != nil || o.blocked.Load() {
		<-p.lock
		if err == nil {
			err = fmt.Errorf("%w: the broker blocks publishing: memory or disk alarm", redrive.ErrBacklogged)
		}
		return fail(err)
	}
	go func() { // a write may hang, whatever the context says
		o.send(b, all)
		<-p.lock
	}()
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	select {
	case <-b.done:
		return b.errs
	case <-ctx.Done():
		o.giveUp(began)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.left == 0 {
		return b.errs
	}
	return fail(fmt.Errorf("%w: no confirm: %w", redrive.ErrUnknown, ctx.Err())) // repeating what was confirmed is safe, too
}

// open returns the channel, a new one if the last is over. Its caller holds the lock.
func (p *publisher) open(ctx context.Context) (*outlet, error) {
	p.mu.Lock()
	o, closed := p.outlet, p.closed
	p.mu.Unlock()
	if closed {
		return nil, redrive.ErrClosed
	}
	if o != nil {
		select {
		case <-o.ended:
		default:
			return o, nil
		}
	}
	o, err := newOutlet(ctx, &p.a)
	if err != nil {
		return nil, fmt.Errorf("connect to RabbitMQ: %w", driver.Unavailable(err))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		o.close()
		return nil, redrive.ErrClosed
	}
	p.outlet = o
	return o, nil
}

func newOutlet(ctx context.Context, a *address) (*outlet, error) {
	conn, err := a.dial(ctx)
	if err != nil {
		return nil, err
	}
	o := &outlet{conn: conn, ended: make(chan struct{}), pending: make(map[uint64]*slot)}
	stop := context.AfterFunc(ctx, func() { _ = conn.CloseDeadline(time.Now()) })
	if o.ch, err = conn.Channel(); err == nil {
		err = o.ch.Confirm(false)
	}
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		o.close()
		return nil, err
	}
	// The client's reader hands over each return before the confirm of its message: the
	// first channel must hold nothing back.
	returns := o.ch.NotifyReturn(make(chan amqp.Return))
	confirms := o.ch.NotifyPublish(make(chan amqp.Confirmation, 1024))
	closing := o.ch.NotifyClose(make(chan *amqp.Error, 1))
	blocked := conn.NotifyBlocked(make(chan amqp.Blocking, 16))
	go o.listen(returns, confirms, closing, blocked)
	return o, nil
}

// stalled is how long a channel may leave everything unconfirmed.
const stalled = 5 * time.Second

// giveUp ends a channel on which nothing was confirmed for long: one that published to a
// quorum queue without a leader may wait for ever, while a new one finds the leader.
func (o *outlet) giveUp(began time.Time) {
	if heard := time.Unix(0, o.heard.Load()); time.Since(began) > stalled && time.Since(heard) > stalled && !o.blocked.Load() {
		o.close()
	}
}

func (o *outlet) close() { _ = o.conn.CloseDeadline(time.Now().Add(farewell)) }

// listen takes what the broker answers, until the channel is over.
func (o *outlet) listen(returns <-chan amqp.Return, confirms <-chan amqp.Confirmation, closing <-chan *amqp.Error, blocked <-chan amqp.Blocking) {
	for confirms != nil {
		select {
		case r, ok := <-returns:
			if !ok {
				returns = nil
				continue
			}
			o.returned(&r)
		case c, ok := <-confirms:
			if !ok {
				confirms = nil
				continue
			}
			o.confirmed(c)
		case b, ok := <-blocked:
			if !ok {
				blocked = nil
				continue
			}
			o.blocked.Store(b.Active)
		}
	}
	err := error(amqp.ErrClosed)
	if reason := <-closing; reason != nil { // closed, at the latest, when the channel is
		err = reason
	}
	o.finish(err)
}

func (o *outlet) returned(r *amqp.Return) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, w := range o.pending {
		if w.id == r.MessageId && w.exchange == r.Exchange && w.key == r.RoutingKey {
			w.returned = true
		}
	}
}

func (o *outlet) confirmed(c amqp.Confirmation) {
	o.heard.Store(time.Now().UnixNano())
	o.mu.Lock()
	w := o.pending[c.DeliveryTag]
	delete(o.pending, c.DeliveryTag)
	o.mu.Unlock()
	if w == nil {
		return
	}
	var err error
	switch {
	case w.returned:
		err = &redrive.Error{Op: "publish", Err: fmt.Errorf("%w: exchange %q, key %q", errUnroutable, w.exchange, w.key), Hint: "bind a queue, or correct exchange and key"}
	case !c.Ack:
		err = fmt.Errorf("%w: the queue is full, or its broker is failing", redrive.ErrBacklogged)
	}
	w.of.settle(w.i, err)
}

// finish tells everyone who still waits that nobody knows.
func (o *outlet) finish(err error) {
	err = fmt.Errorf("%w: %w", redrive.ErrUnknown, err)
	o.mu.Lock()
	pending := o.pending
	o.pending, o.over, o.err = nil, true, err
	o.mu.Unlock()
	for _, w := range pending {
		w.of.settle(w.i, err)
	}
	close(o.ended)
	o.close()
}

// send writes messages. What cannot be written is settled with the channel's end.
func (o *outlet) send(b *sending, all []outgoing) {
	slots := make([]slot, len(all))
	for i := range all {
		w := &slots[i]
		*w = slot{of: b, i: i, id: all[i].msg.MessageId, exchange: all[i].exchange, key: all[i].key}
		o.last++
		o.mu.Lock()
		if o.over {
			err := o.err
			o.mu.Unlock()
			b.settle(i, err)
			continue
		}
		o.pending[o.last] = w
		o.mu.Unlock()
		if err := o.ch.PublishWithContext(context.Background(), w.exchange, w.key, true, false, all[i].msg); err != nil {
			o.close() // numbers and confirms no longer belong together
		}
	}
}

// close ends the publisher. What waits for a confirm ends as unknown.
func (p *publisher) close() {
	p.mu.Lock()
	p.closed = true
	o := p.outlet
	p.mu.Unlock()
	if o != nil {
		o.close()
		<-o.ended
	}
}
