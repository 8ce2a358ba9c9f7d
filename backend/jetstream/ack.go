package jetstream

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// What the server receives about a delivery.
const (
	done    = "+ACK"
	nak     = "-NAK"
	working = "+WPI"
)

// ackWait bounds how long the server's answer to an acknowledgement is awaited: it may
// never come, after a change of the leader.
const ackTimeout = 5 * time.Second

// ack is one word about a delivery.
type ack struct{ reply, word string }

// acks sends acknowledgements and waits for the server's answers, any number at once.
type acks struct {
	nc     *nats.Conn
	prefix string
	sub    *nats.Subscription

	mu      sync.Mutex
	number  uint64
	waiting map[uint64]waitingAck
}

type waitingAck struct {
	round *ackRound
	i     int
}

// ackRound is one call of send. Its fields are under the lock of acks.
type ackRound struct {
	errs []error
	left int
	done chan struct{}
}

func newAcks(nc *nats.Conn) (*acks, error) {
	a := &acks{nc: nc, prefix: nc.NewInbox() + ".", waiting: make(map[uint64]waitingAck)}
	var err error
	if a.sub, err = nc.Subscribe(a.prefix+"*", a.answered); err != nil {
		return nil, err
	}
	return a, a.sub.SetPendingLimits(-1, -1)
}

func (a *acks) close() { _ = a.sub.Unsubscribe() }

// send sends all and returns when all are answered, or an error an item: [redrive.ErrUnknown]
// where no answer came. nil: all were.
func (a *acks) send(ctx context.Context, all []ack) []error {
	if len(all) == 0 {
		return nil
	}
	r := &ackRound{errs: make([]error, len(all)), left: len(all), done: make(chan struct{})}
	a.mu.Lock()
	first := a.number + 1
	a.number += uint64(len(all))
	for i := range all {
		r.errs[i] = redrive.ErrUnknown
		a.waiting[first+uint64(i)] = waitingAck{r, i}
	}
	a.mu.Unlock()
	reply := make([]byte, 0, len(a.prefix)+16)
	for i := range all {
		number := first + uint64(i)
		reply = strconv.AppendUint(append(reply[:0], a.prefix...), number, 36)
		if err := a.nc.PublishRequest(all[i].reply, string(reply), []byte(all[i].word)); err != nil {
			a.answer(number, fmt.Errorf("%w: %w", redrive.ErrUnknown, err))
		}
	}
	ctx, cancel := context.WithTimeout(ctx, ackTimeout)
	defer cancel()
	select {
	case <-r.done:
	case <-ctx.Done():
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if r.left == 0 {
		if driver.FirstError(r.errs) == nil {
			return nil
		}
		return r.errs
	}
	for i := range all {
		delete(a.waiting, first+uint64(i))
	}
	return r.errs
}

// answered is called with the server's answers.
func (a *acks) answered(m *nats.Msg) {
	number, err := strconv.ParseUint(strings.TrimPrefix(m.Subject, a.prefix), 36, 64)
	if err != nil {
		return
	}
	if m.Header.Get("Status") != "" { // nobody listens: the consumer or its leader is gone
		a.answer(number, fmt.Errorf("%w: %w", redrive.ErrUnknown, nats.ErrNoResponders))
		return
	}
	a.answer(number, nil)
}

func (a *acks) answer(number uint64, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	w, ok := a.waiting[number]
	if !ok {
		return
	}
	delete(a.waiting, number)
	w.round.errs[w.i] = err
	if w.round.left--; w.round.left == 0 {
		close(w.round.done)
	}
}
