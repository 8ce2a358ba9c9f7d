package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/coder/websocket"

	"github.com/redrive/redrive/internal/problem"
	"github.com/redrive/redrive/internal/wsproto"
)

// errRefused says that the daemon refused the handshake in a way that will not change.
var errRefused = errors.New("the daemon refuses the connection")

// run keeps the client connected until it ends.
func (c *Client) run() {
	defer close(c.done)
	defer c.giveUp()
	for n := 0; c.ctx.Err() == nil; n++ {
		welcomed, err := c.connection()
		if welcomed {
			n = 0
		}
		switch {
		case c.ctx.Err() != nil:
			return
		case final(err), errors.Is(err, errRefused):
			if c.ended() && websocket.CloseStatus(err) == websocket.StatusNormalClosure {
				err = ErrClosed
			}
			c.cancel(err)
			return
		}
		c.o.Logger.Debug("connection lost", "error", err)
		select {
		case <-c.ctx.Done():
		case <-time.After(c.backoff(n)):
		}
	}
}

func (c *Client) ended() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.bye
}

// giveUp ends everybody who still waits.
func (c *Client) giveUp() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, t := range c.m.tickets {
		if t.decided != nil {
			t.decided(ErrClosed)
		}
	}
	c.m.tickets = nil
	c.changedLocked()
}

func (c *Client) changedLocked() {
	close(c.changed)
	c.changed = make(chan struct{})
}

// connection is one connection, from its handshake to its end.
func (c *Client) connection() (welcomed bool, err error) {
	ws, err := c.dial()
	if err != nil {
		return false, err
	}
	ctx, cancel := context.WithCancel(c.ctx)
	defer cancel()
	results := make(chan *Result, wsproto.MaxWindow)
	ends := make(chan error, 3)
	go func() { ends <- c.write(ctx, ws) }()
	go func() { ends <- c.handle(ctx, results) }()
	go func() { ends <- c.ping(ctx, ws) }()
	welcomed, err = c.read(ctx, ws, results)
	cancel()
	_ = ws.CloseNow() // it is over
	for range cap(ends) {
		if e := <-ends; e != nil && !errors.Is(e, context.Canceled) && err == nil {
			err = e
		}
	}
	c.mu.Lock()
	c.m.open = false
	c.mu.Unlock()
	if c.o.OnState != nil && welcomed {
		c.o.OnState(false, err)
	}
	return welcomed, err
}

func (c *Client) dial() (*websocket.Conn, error) {
	ctx, cancel := context.WithTimeout(c.ctx, dialTimeout)
	defer cancel()
	o := &websocket.DialOptions{Subprotocols: []string{wsproto.Subprotocol}, HTTPClient: c.o.HTTPClient, HTTPHeader: make(http.Header)}
	if c.o.Token != "" {
		o.HTTPHeader.Set("Authorization", "Bearer "+c.o.Token)
	}
	ws, resp, err := websocket.Dial(ctx, c.url, o) //nolint:bodyclose // the library reads what there is of it
	if err != nil {
		if resp != nil && (resp.StatusCode/100 == 4 || resp.StatusCode == http.StatusNotImplemented) &&
			resp.StatusCode != http.StatusRequestTimeout && resp.StatusCode != http.StatusTooManyRequests {
			return nil, refusal(resp)
		}
		return nil, err
	}
	ws.SetReadLimit(maxRead)
	if ws.Subprotocol() != wsproto.Subprotocol {
		_ = ws.Close(websocket.StatusProtocolError, "subprotocol")
		return nil, fmt.Errorf("%w: it does not speak %s", errRefused, wsproto.Subprotocol)
	}
	c.mu.Lock()
	hello := c.m.hello()
	c.mu.Unlock()
	if err := ws.Write(ctx, websocket.MessageText, hello); err != nil {
		_ = ws.CloseNow()
		return nil, err
	}
	return ws, nil
}

// refusal is what the daemon said against a connection.
func refusal(resp *http.Response) error {
	b, err := io.ReadAll(io.LimitReader(resp.Body, 1024)) // the library keeps as much
	p := new(problem.Problem)
	if err == nil && json.Unmarshal(b, p) == nil && p.Title != "" {
		return fmt.Errorf("%w: %w", errRefused, p)
	}
	return fmt.Errorf("%w: HTTP %s", errRefused, resp.Status)
}

// read takes the server's frames until the connection ends.
func (c *Client) read(ctx context.Context, ws *websocket.Conn, results chan<- *Result) (welcomed bool, err error) {
	for {
		_, text, err := ws.Read(ctx)
		if err != nil {
			return welcomed, err
		}
		c.mu.Lock()
		in, err := c.m.take(text)
		if in.gap != nil && in.gap.session {
			c.dropCalls()
		}
		c.changedLocked()
		c.mu.Unlock()
		if err != nil {
			return welcomed, err
		}
		c.poke()
		switch {
		case in.welcomed:
			welcomed = true
			c.welcome()
		case in.result != nil:
			select {
			case results <- in.result:
			case <-ctx.Done():
				return welcomed, ctx.Err()
			}
		case in.gap != nil && c.o.OnGap != nil:
			c.o.OnGap(in.gap.session, in.gap.lost)
		case in.slow != nil && c.o.OnSlowDown != nil:
			c.o.OnSlowDown(*in.slow)
		}
	}
}

func (c *Client) welcome() {
	select {
	case <-c.ready:
	default:
		close(c.ready)
	}
	if c.o.OnState != nil {
		c.o.OnState(true, nil)
	}
}

// dropCalls ends the calls whose results will not come: those of messages that were
// acknowledged in a session that is lost. The others get new numbers.
func (c *Client) dropCalls() {
	waiting := make(map[uint64]*waitingCall, len(c.m.tickets))
	for i, t := range c.m.tickets {
		if w := c.calls[t.seq]; w != nil {
			waiting[uint64(i)+1] = w
			delete(c.calls, t.seq)
		}
	}
	for _, w := range c.calls {
		close(w.result)
	}
	c.calls = waiting
}

// write sends what there is to send.
func (c *Client) write(ctx context.Context, ws *websocket.Conn) error {
	said := false
	for {
		c.mu.Lock()
		frames := c.m.due(sendAtOnce)
		bye := c.bye && c.m.open && len(frames) == 0 && len(c.m.tickets) == 0 && !said
		c.mu.Unlock()
		if bye {
			said = true
			frames = append(frames, []byte(`{"type":"bye"}`))
		}
		for _, f := range frames {
			if err := c.writeFrame(ctx, ws, f); err != nil {
				return err
			}
		}
		if len(frames) > 0 {
			continue
		}
		select {
		case <-c.wake:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (c *Client) writeFrame(ctx context.Context, ws *websocket.Conn, f []byte) error {
	ctx, cancel := context.WithTimeout(ctx, writePatience)
	defer cancel()
	err := ws.Write(ctx, websocket.MessageText, f)
	if err != nil {
		_ = ws.CloseNow() // the reader must end too
	}
	return err
}

// handle gives results to the application.
func (c *Client) handle(ctx context.Context, results <-chan *Result) error {
	for {
		// What came before the connection ended is handled still.
		select {
		case r := <-results:
			c.deliver(r)
			continue
		default:
		}
		select {
		case r := <-results:
			c.deliver(r)
		case <-ctx.Done():
			if len(results) == 0 || c.ctx.Err() != nil {
				return ctx.Err()
			}
		}
	}
}

func (c *Client) deliver(r *Result) {
	if c.o.OnResult != nil {
		c.o.OnResult(r)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.m.handle(r.Number)
	if w := c.calls[r.Seq]; w.takes(r) {
		w.result <- r
		delete(c.calls, r.Seq)
	}
	c.poke()
}

// ping finds out whether the connection still lives.
func (c *Client) ping(ctx context.Context, ws *websocket.Conn) error {
	tick := time.NewTicker(pingInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		patience, cancel := context.WithTimeout(ctx, pingPatience)
		err := ws.Ping(patience)
		cancel()
		if err != nil {
			_ = ws.CloseNow() // the reader must end too
			return fmt.Errorf("no answer to a ping: %w", err)
		}
	}
}
