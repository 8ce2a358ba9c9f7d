package rabbitmq

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/headername"
)

const (
	heartbeat  = 10 * time.Second // a dead peer is noticed after two
	handshake  = 15 * time.Second
	farewell   = 2 * time.Second // to close in order
	minBackoff = 50 * time.Millisecond
	maxBackoff = 5 * time.Second
)

// dial connects to the first host that answers. The client's own recovery stays off: it
// keeps delivery tags across channels.
func (a *address) dial(ctx context.Context) (conn *amqp.Connection, err error) {
	start := rand.IntN(len(a.hosts)) // so that clients spread over a cluster
	for i := range a.hosts {
		if conn, err = a.dialHost(ctx, a.hosts[(start+i)%len(a.hosts)]); err == nil || ctx.Err() != nil {
			return conn, err
		}
	}
	return nil, err
}

func (a *address) dialHost(ctx context.Context, host string) (*amqp.Connection, error) {
	ctx, cancel := context.WithTimeout(ctx, handshake)
	defer cancel()
	var conn net.Conn
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", host)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Now()) })
	if a.tls != nil {
		config := a.tls.Clone()
		if config.ServerName == "" {
			config.ServerName, _, _ = net.SplitHostPort(host)
		}
		secure := tls.Client(conn, config)
		if err := secure.HandshakeContext(ctx); err != nil {
			_ = conn.Close()
			return nil, err
		}
		conn = secure
	}
	properties := amqp.NewConnectionProperties()
	properties.SetClientConnectionName("redrive")
	c, err := amqp.Open(conn, amqp.Config{SASL: a.plain(), Vhost: a.vhost, Heartbeat: heartbeat, Locale: "en_US", Properties: properties})
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return c, nil
}

// session is the life of one channel that consumes.
type session struct {
	conn    *amqp.Connection
	ch      *amqp.Channel
	pushed  <-chan amqp.Delivery
	closing chan *amqp.Error
	returns chan amqp.Return // in a transaction, of messages that no queue took
	epoch   uint64
	tags    tags // under the source's lock
}

// connect opens a channel and consumes the queue. Only the first of a source declares.
func (s *Source) connect(ctx context.Context, first bool) (*session, error) {
	conn, err := s.a.dial(ctx)
	if err != nil {
		return nil, err
	}
	n := &session{conn: conn, closing: make(chan *amqp.Error, 1)}
	stop := context.AfterFunc(ctx, func() { _ = conn.CloseDeadline(time.Now()) })
	err = s.consume(n, first)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		_ = conn.CloseDeadline(time.Now().Add(farewell))
		return nil, err
	}
	return n, nil
}

func (s *Source) consume(n *session, first bool) error {
	if err := s.topology(n.conn, first); err != nil {
		return err
	}
	ch, err := n.conn.Channel()
	if err != nil {
		return err
	}
	n.ch = ch
	ch.NotifyClose(n.closing)
	if s.inTx() {
		n.returns = ch.NotifyReturn(make(chan amqp.Return, s.a.prefetch)) // as many as can be in one transaction
		if err := ch.Tx(); err != nil {
			return err
		}
	}
	if err := ch.Qos(s.a.prefetch, 0, false); err != nil {
		return err
	}
	n.pushed, err = ch.Consume(s.a.queue, "redrive-"+redrive.NewID(), false, false, false, false, nil)
	return err
}

// begin makes a session the current one.
func (s *Source) begin(n *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.epoch++
	s.connects++
	n.epoch, n.tags = s.epoch, newTags()
	s.session, s.fault = n, nil
}

// end lets go of what the session's channel had: the broker gives it to others.
func (s *Source) end(n *session) {
	_ = n.conn.CloseDeadline(time.Now().Add(farewell))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.session = nil
	s.buffer = [driver.Lanes][]*item{}
	clear(s.inflight)
	select {
	case err := <-n.closing:
		if err != nil {
			s.fault = err
		}
	default:
	}
	s.changeLocked()
}

// keep keeps a channel open as long as the source lives.
func (s *Source) keep(n *session) {
	defer close(s.ended)
	for {
		s.receive(n)
		s.end(n)
		var err error
		for wait := minBackoff; ; wait = min(2*wait, maxBackoff) {
			if s.alive.Err() != nil {
				return
			}
			if n, err = s.again(); err == nil {
				break
			}
			s.failed(err)
			select {
			case <-s.alive.Done():
			case <-time.After(wait + rand.N(wait)): // so that clients do not come back all at once
			}
		}
		s.begin(n)
	}
}

// again connects anew. A queue without a leader answers nothing: the fault is reported, and
// another try may find one.
func (s *Source) again() (*session, error) {
	ctx, cancel := context.WithTimeout(s.alive, patience)
	defer cancel()
	return s.connect(ctx, false)
}

func (s *Source) failed(err error) {
	if errors.Is(err, context.Canceled) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = fmt.Errorf("queue %s: %w", s.a.queue, driver.Unavailable(err))
	s.changeLocked()
}

// receive puts what is pushed into the buffer, until the channel ends.
func (s *Source) receive(n *session) {
	for {
		select {
		case d, ok := <-n.pushed:
			if !ok {
				return
			}
			if !s.take(n, d) {
				return
			}
		case <-s.alive.Done():
			return
		}
	}
}

// take buffers a message and what else is there at the moment.
func (s *Source) take(n *session, d amqp.Delivery) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.changeLocked()
	for {
		lane := laneOf(&d)
		s.buffer[lane] = append(s.buffer[lane], &item{d: d})
		select {
		case next, ok := <-n.pushed:
			if !ok {
				return false
			}
			d = next
		default:
			return true
		}
	}
}

// laneOf tells what was tried before from what was not.
func laneOf(d *amqp.Delivery) redrive.Lane {
	if _, tried := d.Headers[headername.Attempts]; tried {
		return redrive.LaneRetry
	}
	return redrive.LaneFresh
}

// look runs something on a channel of its own, on the connection that consumes: a
// question about what is not there ends its channel.
func (s *Source) look(ctx context.Context, ask func(*amqp.Channel) error) error {
	s.mu.Lock()
	n, fault := s.session, s.fault
	s.mu.Unlock()
	if n == nil {
		return errors.Join(fmt.Errorf("%w: there is no connection to RabbitMQ", redrive.ErrUnavailable), fault)
	}
	ended := make(chan error, 1)
	go func() {
		ch, err := n.conn.Channel()
		if err == nil {
			err = errors.Join(ask(ch), ch.Close())
		}
		ended <- err
	}()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}
