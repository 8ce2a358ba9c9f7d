package ws

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/coder/websocket"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/daemon/gateway/session"
	"github.com/redrive/redrive/internal/wsproto"
)

// Bounds of how a connection waits for a store that does not answer.
const (
	storeTimeout = 30 * time.Second
	minPatience  = 50 * time.Millisecond
	maxPatience  = 5 * time.Second
)

// wakeLocked starts the worker, if there is none.
func (c *conn) wakeLocked() {
	if !c.busy && !c.ended {
		c.busy = true
		go c.work()
	}
}

// work goes on until there is nothing to do.
func (c *conn) work() {
	defer func() {
		if v := recover(); v != nil {
			c.workerPanicked(v)
		}
	}()
	var patience time.Duration
	for {
		out, why, more := c.turn()
		switch {
		case !more:
			return
		case len(out) > 0:
			c.send(out)
			continue
		case why != nil:
			c.shut(why)
			continue
		}
		if err := c.advance(); err != nil {
			patience = min(max(2*patience, minPatience), maxPatience)
			c.g.o.Logger.LogAttrs(c.g.base, slog.LevelWarn, "store timeout in a session: retrying", slog.Any("error", err), slog.Duration("again_in", patience))
			c.rest(patience)
		} else {
			patience = 0
		}
	}
}

// locked calls f under the lock, which a panic in it does not keep.
func (c *conn) locked(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
}

// turn returns what is to be sent, else how the connection is to end, and whether there
// is anything to do. If not, the worker has ended.
func (c *conn) turn() (out [][]byte, why *session.Close, more bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.ended && c.ws.Load() != nil {
		if c.m != nil && (c.closing == nil || !c.closing.Barred) {
			out = c.m.Take()
		}
		if len(out) > 0 || c.closing != nil || c.m != nil && c.hasWorkLocked() {
			return out, c.closing, true
		}
	}
	c.busy = false
	c.room.Broadcast()
	return nil, nil, false
}

// hasWorkLocked prepares the next step, if one is due, or has itself called when one is.
func (c *conn) hasWorkLocked() bool {
	m := c.m
	if m.Unsure() || len(m.Doubts()) > 0 || len(m.Again()) > 0 || m.Looks() {
		return true
	}
	now := time.Now()
	if hold := m.HeldUntil(); now.Before(hold) {
		c.wakeAtLocked(hold.Sub(now))
		return m.Ready(now)
	}
	if m.Ready(now) {
		return true
	}
	if err := m.Overfull(); err != nil {
		c.closing = asClose(err)
		return true
	}
	return false
}

func (c *conn) wakeAtLocked(in time.Duration) {
	if c.timer == nil {
		c.timer = time.AfterFunc(in, func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.wakeLocked()
		})
		return
	}
	c.timer.Reset(in)
}

// send writes frames. A client that cannot be written to is gone.
func (c *conn) send(out [][]byte) {
	ws := c.ws.Load()
	for _, f := range out {
		c.write.Store(time.Now().UnixNano())
		err := ws.Write(context.Background(), websocket.MessageText, f)
		c.write.Store(0)
		if err != nil {
			c.broke(err)
			_ = ws.CloseNow() // the reader must end too
			return
		}
	}
}

// shut says why the connection ends.
func (c *conn) shut(why *session.Close) {
	c.mu.Lock()
	c.ended = true
	m := c.m
	c.mu.Unlock()
	if why.Code == wsproto.CodeBye && m != nil {
		c.g.purge(m.Name())
	}
	_ = c.ws.Load().Close(websocket.StatusCode(why.Code), why.Reason) // it ends, whatever the client says
}

// rest waits before the store is asked again, or until the connection ends.
func (c *conn) rest(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	woken := false
	t := time.AfterFunc(d, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		woken = true
		c.room.Broadcast()
	})
	defer t.Stop()
	for !woken && c.closing == nil {
		c.room.Wait()
	}
}

// workerPanicked ends the connection; the machine, which may be in any state, is let go.
func (c *conn) workerPanicked(v any) {
	c.panicked(v)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.m, c.busy = nil, false
	c.room.Broadcast()
	c.wakeLocked() // to say so
}

// advance does one thing for the machine. The error is a fault of the store; anything
// else that goes wrong ends the connection.
func (c *conn) advance() error {
	c.g.o.inject("work")
	ctx, cancel := context.WithTimeout(c.g.base, storeTimeout)
	defer cancel()
	err := c.next(ctx)
	var why *session.Close
	switch {
	case err == nil:
		c.mu.Lock()
		c.room.Broadcast()
		c.mu.Unlock()
	case errors.As(err, &why):
		c.end(why)
	case errors.Is(err, redrive.ErrClosed):
		c.end(session.NewClose(wsproto.CodeRestart, "restart", "reconnect and resume"))
	case !isFault(err):
		c.end(asClose(err))
	default:
		return err
	}
	return nil
}

// isFault reports whether an error of the store may pass. What the store calls invalid
// is a fault of ours, and would come again.
func isFault(err error) bool { return !errors.Is(err, redrive.ErrInvalid) }

func (c *conn) next(ctx context.Context) error {
	var m *session.Machine
	var doubts []redrive.Ref
	var again, known []string
	var unsure, wants bool
	var limit int
	c.locked(func() {
		m = c.m
		unsure, doubts, again = m.Unsure(), m.Doubts(), m.Again()
		if !unsure && len(doubts) == 0 && len(again) == 0 {
			known, limit, wants = m.Wants()
		}
	})
	switch {
	case unsure:
		rec, version, err := c.g.record(ctx, m.Name())
		if err != nil {
			return err
		}
		c.locked(func() { err = m.Reread(rec, version) })
		return err
	case len(doubts) > 0:
		remembered, err := c.g.store.Recall(ctx, doubts)
		if err != nil {
			return err
		}
		c.locked(func() { m.Resolve(remembered) })
		return nil
	case len(again) > 0:
		results, err := c.g.results(ctx, again)
		if err != nil {
			return err
		}
		c.locked(func() { m.Repush(results) })
		return nil
	case wants:
		found, more, err := c.g.find(ctx, m.Name(), known, limit)
		if err != nil {
			c.locked(m.Stale)
			return err
		}
		c.locked(func() { m.Found(found, more) })
		return nil
	}
	return c.step(ctx, m)
}

// step writes the next step to the store.
func (c *conn) step(ctx context.Context, m *session.Machine) error {
	var queues []string
	c.locked(func() { queues = m.Queues() })
	queue, level, after := c.g.level(queues)
	now := time.Now()
	var s *session.Step
	c.locked(func() {
		if len(queues) > 0 {
			m.SetLevel(queue, level, after, now)
		}
		s = m.Next(now)
	})
	if s == nil {
		return nil
	}
	items, err := c.who.Apply(ctx, s.Batch)
	var why error
	c.locked(func() { why = m.Applied(items, err, time.Now()) })
	if err == nil {
		c.saved.Store(now.UnixNano())
		c.g.count(s, items)
	}
	if why != nil {
		return why
	}
	if errors.Is(err, redrive.ErrBacklogged) || errors.Is(err, redrive.ErrFull) || errors.Is(err, redrive.ErrVersion) {
		return nil // the machine knows what to do
	}
	return err
}

// level returns how full the fullest of queues is.
func (g *Gateway) level(queues []string) (queue string, level driver.Level, after time.Duration) {
	level = driver.LevelOK
	for _, q := range queues {
		if l, a := g.o.Level(q); l > level {
			queue, level, after = q, l, a
		}
	}
	return queue, level, after
}

// count adds what a step did to the statistics.
func (g *Gateway) count(s *session.Step, items []error) {
	n := 0
	for i := range s.Batch.Publish {
		if items == nil || items[i] == nil {
			n++
		}
	}
	if n > 0 {
		g.stats.published.Add(int64(n))
		g.o.Accepted(n)
	}
	g.stats.refused.Add(int64(s.Refused() + len(s.Batch.Publish) - n))
	g.stats.pushed.Add(int64(s.Pushed()))
}
