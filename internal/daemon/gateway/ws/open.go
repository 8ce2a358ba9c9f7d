package ws

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/daemon/gateway/session"
	"github.com/redrive/redrive/internal/wsproto"
)

// open begins the session that a hello asks for, or a new one. It reports whether to go
// on.
func (c *conn) open(text []byte) bool {
	c.g.o.inject("hello")
	h, err := session.ReadHello(text)
	if err != nil {
		c.end(asClose(err))
		return false
	}
	ctx, cancel := context.WithTimeout(c.g.base, storeTimeout)
	defer cancel()
	for patience := minPatience; ; patience = min(2*patience, maxPatience) {
		m, err := c.tryOpen(ctx, h)
		if err == nil {
			c.opened(h, m)
			return true
		}
		var why *session.Close
		switch {
		case errors.As(err, &why):
			c.end(why)
			return false
		case errors.Is(err, redrive.ErrClosed):
			c.end(session.NewClose(wsproto.CodeRestart, "restart", "reconnect and resume"))
			return false
		case ctx.Err() != nil:
			why := session.NewClose(wsproto.CodeOverloaded, "overloaded", "the store does not answer")
			why.Err = err
			c.end(why)
			return false
		}
		c.rest(patience)
		if c.isClosing() {
			return false
		}
	}
}

func (c *conn) isClosing() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closing != nil
}

// tryOpen opens the session once: with the record as it is now.
func (c *conn) tryOpen(ctx context.Context, h *session.Hello) (*session.Machine, error) {
	var rec *session.Record
	var version int64
	if h.Session != "" {
		var err error
		if rec, version, err = c.g.record(ctx, h.Session); err != nil {
			return nil, err
		}
	}
	m, err := session.Open(&c.g.o.Session, h, c.who.Name, rec, version, time.Now())
	if err != nil {
		return nil, err
	}
	m.Allow(c.allow)
	if refs := m.Doubts(); len(refs) > 0 {
		remembered, err := c.g.store.Recall(ctx, refs)
		if err != nil {
			return nil, err
		}
		m.Resolve(remembered)
	}
	s := m.Next(time.Now())
	items, err := c.who.Apply(ctx, s.Batch)
	if why := m.Applied(items, err, time.Now()); why != nil {
		return nil, why
	}
	if err == nil {
		return m, nil
	}
	rec, version, readErr := c.g.record(ctx, m.Name())
	if readErr != nil {
		return nil, errors.Join(err, readErr)
	}
	if err := m.Reread(rec, version); err != nil {
		return nil, err
	}
	return m, nil
}

// allow refuses a queue that the token or the configuration does not allow.
func (c *conn) allow(queue string) error {
	c.g.o.inject("publish")
	if c.who.Allow != nil {
		if err := c.who.Allow(queue); err != nil {
			return err
		}
	}
	return c.g.o.AllowQueue(queue)
}

// opened makes the session this connection's.
func (c *conn) opened(h *session.Hello, m *session.Machine) {
	stats := &c.g.stats
	switch {
	case m.Record().Epoch > 1:
		stats.resumed.Add(1)
	case h.Session != "":
		stats.gaps.Add(1)
		stats.opened.Add(1)
	default:
		stats.opened.Add(1)
	}
	c.saved.Store(time.Now().UnixNano())
	c.g.name(c, m.Name())
	c.mu.Lock()
	defer c.mu.Unlock()
	c.m = m
	c.wakeLocked()
}

// record reads a session, nil if there is none.
func (g *Gateway) record(ctx context.Context, name string) (*session.Record, int64, error) {
	r, err := g.store.GetRecord(ctx, session.Space, name)
	if errors.Is(err, redrive.ErrNotFound) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, err
	}
	rec, err := session.DecodeRecord(r.Value)
	return rec, r.Version, err
}

// results reads results by their ids; an element is nil where there is none.
func (g *Gateway) results(ctx context.Context, ids []string) ([]*redrive.Message, error) {
	refs := make([]redrive.Ref, len(ids))
	for i, id := range ids {
		refs[i] = redrive.Ref{Queue: driver.ResultQueue, ID: id}
	}
	entries, err := g.store.Get(ctx, refs)
	if err != nil {
		return nil, err
	}
	results := make([]*redrive.Message, len(ids))
	for i, e := range entries {
		if e != nil {
			results[i] = &e.Message
		}
	}
	return results, nil
}

// find looks for results of a session beyond the known ones, in their order.
func (g *Gateway) find(ctx context.Context, name string, known []string, limit int) (found []*redrive.Message, more bool, err error) {
	q := redrive.Query{Queue: driver.ResultQueue, Key: name, Limit: len(known) + limit, Bodies: len(known) == 0}
	page, err := g.store.Find(ctx, q)
	if err != nil {
		return nil, false, err
	}
	var fresh []string
	for i := range page.Entries {
		e := &page.Entries[i]
		if slices.Contains(known, e.ID) || e.State == redrive.StateDead {
			continue
		}
		if len(fresh) == limit {
			more = true
			break
		}
		fresh = append(fresh, e.ID)
		found = append(found, &e.Message)
	}
	more = more || page.Next != ""
	if q.Bodies || len(fresh) == 0 {
		return found, more, nil
	}
	found, err = g.results(ctx, fresh)
	return slices.DeleteFunc(found, func(m *redrive.Message) bool { return m == nil }), more, err
}

// purge drops the results of a session that is over.
func (g *Gateway) purge(name string) {
	ctx, cancel := context.WithTimeout(g.base, storeTimeout)
	defer cancel()
	for {
		sel := driver.Selection{Query: &redrive.Query{Queue: driver.ResultQueue, Key: name}}
		done, err := g.store.Update(ctx, sel, driver.Change{Action: driver.ActDrop, Note: "the session ended"}, redrive.MaxPage)
		dropped := slices.ContainsFunc(done, func(u driver.Updated) bool { return u.Err == nil })
		if err != nil || !dropped {
			return // what is left expires
		}
	}
}
