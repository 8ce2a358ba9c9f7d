// Package client publishes to a redrive daemon over one WebSocket connection and gets the
// results of the deliveries back over it. It hides losing and resuming the connection:
// what [Client.Publish] returned nil for is durable, and its result comes, however often
// the connection, the server or both went away in between.
package client

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/coder/websocket"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/internal/problem"
)

// ErrClosed says that the client was closed. Of a message that was on its way it is not
// known whether it was accepted.
var ErrClosed = errors.New("the client is closed")

// Options configures a [Client]. Every field has a default.
type Options struct {
	// Token for a daemon that asks for one.
	Token string
	// OnResult is called with each result, one after the other, in their order. When it
	// returns, the server forgets the result. Results of messages published by Call come
	// here too. Optional.
	OnResult func(*Result)
	// OnGap is called when results were lost: those of the whole session, which the server
	// does not know any more, or a number that expired. Optional.
	OnGap func(session bool, lost uint64)
	// OnSlowDown is called when the server is busy. Optional.
	OnSlowDown func(SlowDown)
	// OnState is called when the connection is there and when it is not, with the reason.
	// Optional.
	OnState func(connected bool, why error)
	// Window is how many results may come that are not handled yet: 1-256, by default 64.
	Window int
	// Session resumes a session of an earlier client; see [Client.Session].
	Session *Session
	// MaxBackoff bounds how long the client waits before it connects again. Defaults to
	// 30 s.
	MaxBackoff time.Duration
	// HTTPClient for the handshake. Optional.
	HTTPClient *http.Client
	// Logger defaults to [slog.Default].
	Logger *slog.Logger
}

// Session is what a session is resumed with, by this process or its next start.
type Session struct {
	ID      string `json:"id"`
	Token   string `json:"token"`   // a secret
	Attempt uint64 `json:"attempt"` // of the newest connection
	Seq     uint64 `json:"seq"`     // the highest acknowledged number
	Result  uint64 `json:"result"`  // the highest handled result
}

// Client is a session with a daemon. It is safe for concurrent use.
type Client struct {
	url string
	o   Options

	ctx    context.Context //nolint:containedctx // the client's life
	cancel context.CancelCauseFunc
	done   chan struct{}

	mu      sync.Mutex
	m       *machine
	changed chan struct{} // closed and made anew when there may be room, or an end
	wake    chan struct{} // there may be something to send
	calls   map[uint64]*waitingCall
	bye     bool
	ready   chan struct{} // closed by the first welcome
}

const (
	defaultBackoff = 30 * time.Second
	firstBackoff   = 100 * time.Millisecond
	dialTimeout    = 15 * time.Second
	pingInterval   = 25 * time.Second
	pingPatience   = 15 * time.Second
	writePatience  = 30 * time.Second
	sendAtOnce     = 64      // frames
	maxRead        = 8 << 20 // bytes of a frame of the server
)

// Dial connects to a daemon, at an address such as ws://127.0.0.1:7333/v1/ws, and waits
// for the session to begin. It fails if the daemon refuses, or ctx ends before. From then
// on the client keeps itself connected until it is closed.
func Dial(ctx context.Context, url string, o Options) (*Client, error) {
	if o.MaxBackoff <= 0 {
		o.MaxBackoff = defaultBackoff
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	c := &Client{
		url: url, o: o, done: make(chan struct{}), m: newMachine(o.Window), changed: make(chan struct{}), wake: make(chan struct{}, 1),
		calls: make(map[uint64]*waitingCall), ready: make(chan struct{}),
	}
	if s := o.Session; s != nil {
		c.m.session, c.m.token, c.m.attempt = s.ID, s.Token, s.Attempt
		c.m.acked, c.m.next, c.m.handled, c.m.arrived = s.Seq, s.Seq+1, s.Result, s.Result
	}
	c.ctx, c.cancel = context.WithCancelCause(context.Background())
	go c.run()
	select {
	case <-c.ready:
		return c, nil
	case <-c.done:
		return nil, context.Cause(c.ctx)
	case <-ctx.Done():
		c.cancel(ErrClosed)
		<-c.done
		return nil, fmt.Errorf("connect to %s: %w", url, ctx.Err())
	}
}

// Session returns what the session can be resumed with.
func (c *Client) Session() Session {
	c.mu.Lock()
	defer c.mu.Unlock()
	return Session{ID: c.m.session, Token: c.m.token, Attempt: c.m.attempt, Seq: c.m.acked, Result: c.m.handled}
}

// Pending is a message on its way.
type Pending struct {
	c    *Client
	t    *ticket
	done chan struct{}

	duplicate bool
	err       error
}

// Done is closed when it is decided whether the message was accepted.
func (p *Pending) Done() <-chan struct{} { return p.done }

// Err returns why the message was not accepted, once Done is closed: nil, [ErrClosed], or
// a [*redrive.Error] with what the server said, which wraps [redrive.ErrConflict] if
// another message has the ID, [redrive.ErrBacklogged], [redrive.ErrInvalid] and the like.
func (p *Pending) Err() error { return p.err }

// Duplicate reports, once Done is closed, that the message had been accepted before,
// under its ID, by another session. It is durable; its result goes to that session. Of a
// message with NoResult the server does not say so.
func (p *Pending) Duplicate() bool { return p.duplicate }

// Wait waits until the message is durable, or refused.
func (p *Pending) Wait(ctx context.Context) error {
	select {
	case <-p.done:
		return p.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Publish publishes a message and returns when it is durable, or refused: it waits while
// the server has no room, or is not there. The same again under its ID succeeds, another
// body is [redrive.ErrConflict]; see [Pending.Err]. If ctx ends before, the message is
// still on its way.
func (c *Client) Publish(ctx context.Context, m *Message) error {
	p, err := c.Send(ctx, m)
	if err != nil {
		return err
	}
	return p.Wait(ctx)
}

// Send puts a message on its way, and returns without waiting for its acknowledgement. It
// waits while the server's window is full. The message must not be changed until it is
// decided.
func (c *Client) Send(ctx context.Context, m *Message) (*Pending, error) {
	p, _, err := c.send(ctx, m, false)
	return p, err
}

// waitingCall waits for the result of its message.
type waitingCall struct {
	queue, id string // of the message
	result    chan *Result
}

// takes reports whether a result is of the call's message, and not only under its number.
func (w *waitingCall) takes(r *Result) bool {
	return w != nil && r.Queue == w.queue && r.ID == w.id
}

// Call publishes a message and waits for its result. The message is durable even if ctx
// ends before. The result may be that the message is dead. One that names another queue,
// or another ID than the message has, is not taken for it; a message without an ID gets
// one here. The error wraps [redrive.ErrDuplicate] if another session published the message
// before, as that one gets the result.
func (c *Client) Call(ctx context.Context, m *Message) (*Result, error) {
	if m.ID == "" {
		named := *m
		named.ID = redrive.NewID()
		m = &named
	}
	p, result, err := c.send(ctx, m, true)
	if err != nil {
		return nil, err
	}
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.calls, p.t.seq)
	}()
	if err := p.Wait(ctx); err != nil {
		return nil, err
	}
	if p.duplicate {
		return nil, &redrive.Error{Op: "call", Queue: m.Queue, ID: m.ID, Err: redrive.ErrDuplicate, Hint: "its result goes to whoever published it first"}
	}
	select {
	case r, ok := <-result:
		if !ok {
			return nil, ErrGap
		}
		return r, nil
	case <-c.done:
		return nil, context.Cause(c.ctx)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (c *Client) send(ctx context.Context, m *Message, call bool) (p *Pending, result chan *Result, err error) {
	for {
		c.mu.Lock()
		if c.ctx.Err() != nil || c.bye {
			c.mu.Unlock()
			return nil, nil, ErrClosed
		}
		if c.m.room() {
			break
		}
		changed := c.changed
		c.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		}
	}
	defer c.mu.Unlock()
	p = &Pending{c: c, done: make(chan struct{})}
	p.t, err = c.m.add(m, func(err error) {
		var said *problem.Problem
		switch refused := errors.As(err, &said); {
		case refused && said.Name() == "duplicate":
			p.duplicate = true
		case refused:
			p.err = &redrive.Error{Op: "publish", Queue: m.Queue, ID: m.ID, Err: said}
		default:
			p.err = err
		}
		close(p.done)
	})
	if err != nil {
		return nil, nil, err
	}
	if call {
		result = make(chan *Result, 1)
		c.calls[p.t.seq] = &waitingCall{queue: m.Queue, id: m.ID, result: result}
	}
	c.poke()
	return p, result, nil
}

func (c *Client) poke() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// Flush waits until every message that was sent is decided.
func (c *Client) Flush(ctx context.Context) error {
	for {
		c.mu.Lock()
		empty, changed := len(c.m.tickets) == 0, c.changed
		c.mu.Unlock()
		if empty {
			return nil
		}
		select {
		case <-changed:
		case <-c.done:
			return context.Cause(c.ctx)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Bye ends the session for good: what was sent is decided, and results that are still to
// come are given up. Then the client is closed.
func (c *Client) Bye(ctx context.Context) error {
	err := c.Flush(ctx)
	c.mu.Lock()
	c.bye = true
	c.mu.Unlock()
	c.poke()
	select {
	case <-c.done:
	case <-ctx.Done():
		err = errors.Join(err, ctx.Err())
	}
	c.Close()
	return err
}

// Close ends the client. The session is kept by the server for a while and can be resumed
// with what [Client.Session] returns.
func (c *Client) Close() {
	c.cancel(ErrClosed)
	<-c.done
}

// Done is closed when the client has ended: it was closed, or the server refused it for
// good. [Client.Err] says why.
func (c *Client) Done() <-chan struct{} { return c.done }

// Err returns why the client ended.
func (c *Client) Err() error { return context.Cause(c.ctx) }

// backoff is how long to wait before the nth attempt in a row: with full jitter, so that
// clients that lost one server do not come back at once.
func (c *Client) backoff(n int) time.Duration {
	d := min(firstBackoff<<min(n, 20), c.o.MaxBackoff)
	return rand.N(d) + time.Millisecond
}

// final reports whether a close of the server means that it is of no use to connect
// again.
func final(err error) bool {
	switch websocket.CloseStatus(err) {
	case 1000, 1003, 1007, 1009, 4400, 4401, 4403, 4409:
		return true
	}
	return false
}
