package ws

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/daemon/gateway/session"
	"github.com/redrive/redrive/internal/wsproto"
)

const (
	sweepPause    = 500 * time.Millisecond // between two looks at what others put in
	sweepShare    = 20                     // a look takes at most 1/20 of the time
	sweepAlways   = 15 * time.Second       // a look is made so often if results wait
	expirePause   = time.Minute
	restartPause  = time.Second // after an error or a panic
	expireBatch   = 200
	expireLease   = 30 * time.Second
	recordRepeats = 10
)

// Run does the work beside the connections until ctx ends: it looks after them, tells
// sessions of results of other instances, and drops results that nobody acknowledges.
// What fails is logged and begun again.
func (g *Gateway) Run(ctx context.Context) error {
	var parts sync.WaitGroup
	for name, f := range map[string]func(context.Context) error{"keep": g.keepAll, "sweep": g.sweep, "expire": g.expireAll} {
		parts.Go(func() {
			for ctx.Err() == nil {
				if err := safely(ctx, f); err != nil && ctx.Err() == nil {
					g.o.Logger.LogAttrs(ctx, slog.LevelError, "websocket gateway", slog.String("part", name), slog.Any("error", err))
					select {
					case <-ctx.Done():
					case <-time.After(restartPause):
					}
				}
			}
		})
	}
	parts.Wait()
	return nil
}

func safely(ctx context.Context, f func(context.Context) error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("panic: %v\n%s", v, debug.Stack())
		}
	}()
	return f(ctx)
}

func (g *Gateway) expireAll(ctx context.Context) error {
	tick := time.NewTicker(min(expirePause, max(g.o.Results/4, g.o.tick)))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if err := g.Expire(ctx); err != nil {
			return err
		}
	}
}

// keepAll looks at the connections: pings silent ones, closes dead and slow ones and those
// whose token is not good any more, and keeps sessions from expiring. It returns when
// ctx ends.
func (g *Gateway) keepAll(ctx context.Context) error {
	tick := time.NewTicker(g.o.tick)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			now := time.Now()
			g.each(func(c *conn) { g.keep(c, now) })
		}
	}
}

// keep looks at one connection. What goes wrong with it is its own.
func (g *Gateway) keep(c *conn, now time.Time) {
	defer func() {
		if v := recover(); v != nil {
			c.panicked(v)
		}
	}()
	ws := c.ws.Load()
	if ws == nil {
		return
	}
	since := func(nanos int64) time.Duration { return time.Duration(now.UnixNano() - nanos) }
	if at := c.write.Load(); at != 0 && since(at) > g.o.slow {
		c.end(session.NewClose(wsproto.CodeIdle, "slow", "nothing was read for %s", g.o.slow))
		_ = ws.CloseNow() // no close frame fits behind what the client does not read
		return
	}
	if since(c.saved.Load()) > g.o.Session.Expires/3 {
		c.touch()
	}
	silent := since(c.last.Load())
	switch {
	case c.blocked.Load():
	case silent > g.o.Session.Idle:
		c.end(session.NewClose(wsproto.CodeIdle, "idle", "nothing came for %s", g.o.Session.Idle))
	case silent > min(pingAfter, g.o.Session.Idle/3) && c.pinging.CompareAndSwap(false, true):
		go func() {
			defer c.pinging.Store(false)
			ctx, cancel := context.WithTimeout(g.base, pingTimeout)
			defer cancel()
			_ = ws.Ping(ctx) // the answer is heard by the reader
		}()
	}
}

// sweep tells sessions of results that this process did not make itself: those of other
// instances, and of messages that were changed by hand. It returns when ctx ends.
//
// What this process makes, sessions hear of at once. While there are connections, the
// counts of the queue are read twice a second; it is looked through only when more has
// come in than this process made, for at most 1/20 of the time.
func (g *Gateway) sweep(ctx context.Context) error {
	known := int64(-1) // entered, less hinted, at the last look
	var always time.Time
	pause := sweepPause
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
		pause = sweepPause
		if g.connected() == 0 {
			continue
		}
		began := time.Now()
		hinted := g.hinted.Load()
		counts, err := g.store.Counts(ctx, driver.ResultQueue)
		if err != nil {
			return err
		}
		if len(counts) == 0 || counts[0].AllWaiting() == 0 {
			continue
		}
		// A result that is counted but not hinted yet makes one look too many, or hides
		// another until the look that is always made.
		foreign := counts[0].Ledger.Entered() - hinted
		if foreign == known && began.Sub(always) < sweepAlways {
			continue
		}
		known, always = foreign, began
		if err := g.look(ctx); err != nil {
			return err
		}
		pause = max(sweepPause, sweepShare*time.Since(began))
	}
}

func (g *Gateway) connected() int {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return len(g.conns)
}

// look goes through all results and tells the sessions that they belong to.
func (g *Gateway) look(ctx context.Context) error {
	notified := make(map[string]bool)
	q := redrive.Query{Queue: driver.ResultQueue, State: redrive.StateWaiting, Limit: redrive.MaxPage}
	for {
		page, err := g.store.Find(ctx, q)
		if err != nil {
			return err
		}
		for i := range page.Entries {
			key := page.Entries[i].Key
			if notified[key] {
				continue
			}
			notified[key] = true
			if c := g.bySession(key); c != nil {
				c.stale()
			}
		}
		if q.After = page.Next; q.After == "" {
			return nil
		}
	}
}

// Expire drops results that nobody acknowledged in time, and counts them. It is to be
// called now and then; any number of instances may.
func (g *Gateway) Expire(ctx context.Context) error {
	for ctx.Err() == nil {
		ds, err := g.store.Claim(ctx, driver.ClaimRequest{
			Queue: driver.ResultQueue, Expired: true, MaxAge: g.o.Results, Max: expireBatch, Lease: expireLease, Instance: g.o.Session.Instance,
		})
		if err != nil || len(ds) == 0 {
			return err
		}
		lost := make(map[string]uint64)
		drops := make([]driver.Settlement, len(ds))
		for i := range ds {
			lost[ds[i].Key]++
			drops[i] = driver.Settlement{Receipt: ds[i].Receipt, Outcome: redrive.OutcomeDrop, Reason: redrive.ReasonExpired}
		}
		for name, n := range lost {
			// Before they go: should we die in between, the session hears of a few more.
			if err := g.noteLost(ctx, name, n); err != nil {
				return err
			}
		}
		if err := driver.FirstError(g.store.Settle(ctx, drops)); err != nil {
			return err
		}
		g.stats.expired.Add(int64(len(ds)))
		g.o.Logger.LogAttrs(ctx, slog.LevelWarn, "unacknowledged results expired", slog.Int("results", len(ds)), slog.Int("sessions", len(lost)))
		for name := range lost {
			if c := g.bySession(name); c != nil {
				c.touch() // it reads its record anew
			}
		}
	}
	return nil
}

// noteLost counts results in the record of their session, if it has one.
func (g *Gateway) noteLost(ctx context.Context, name string, n uint64) error {
	for range recordRepeats {
		r, err := g.store.GetRecord(ctx, session.Space, name)
		if errors.Is(err, redrive.ErrNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		rec, err := session.DecodeRecord(r.Value)
		if err != nil {
			return err
		}
		rec.Lost += n
		_, err = g.store.Apply(ctx, driver.Batch{Records: []driver.RecordWrite{{Space: session.Space, Key: name, Value: rec.Encode(), Version: r.Version, Expires: g.o.Session.Expires}}})
		if !errors.Is(err, redrive.ErrVersion) {
			return err
		}
	}
	return redrive.ErrVersion
}

// Info is one session as an operator sees it.
type Info struct {
	ID          string
	Owner       string
	Attached    bool // to this process
	Instance    string
	Remote      string // of an attached one
	Epoch       uint64
	Created     time.Time
	Connected   time.Time // when its newest connection began
	Seen        time.Time // when it was last written
	Seq         uint64
	Limit       uint64 // 0: not attached here
	Unacked     int    // messages that were read and are not acknowledged
	Outstanding int    // messages without an acknowledged result
	Result      uint64 // acknowledged up to
	Pushed      int    // results that were pushed and not acknowledged
	Lost        uint64
}

// Sessions lists sessions in order of their names, from the first one after a name.
func (g *Gateway) Sessions(ctx context.Context, after string, limit int) ([]Info, error) {
	records, err := g.store.ListRecords(ctx, session.Space, after, limit)
	if err != nil {
		return nil, err
	}
	list := make([]Info, 0, len(records))
	for i := range records {
		rec, err := session.DecodeRecord(records[i].Value)
		if err != nil {
			return nil, err
		}
		in := Info{
			ID: records[i].Key, Owner: rec.Owner, Instance: rec.Instance, Epoch: rec.Epoch, Created: rec.Created, Connected: rec.Attached,
			Seen: records[i].ExpiresAt.Add(-g.o.Session.Expires), Seq: rec.Seq, Outstanding: rec.Outstanding(), Result: rec.Result, Pushed: len(rec.Pushed), Lost: rec.Lost,
		}
		if c := g.bySession(in.ID); c != nil {
			in.Attached, in.Remote = true, c.remote
			c.locked(func() {
				if c.m != nil {
					in.Limit, in.Unacked = c.m.Limit(), c.m.Pending()
				}
			})
		}
		list = append(list, in)
	}
	return slices.Clip(list), nil
}
