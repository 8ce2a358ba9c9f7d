package engine

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// A consumer whose handler names its kinds claims only those. So that what nobody handles
// does not wait unseen for ever, each such instance says in a record which kinds it
// handles, and once a minute a consumer claims whatever no other instance handles, too.
// It then fails with [redrive.ErrNoHandler], is retried by its policy, so that a deploy
// may catch up, and is dead as unroutable at its end.
const (
	kindSpace      = "kinds"
	kindsEvery     = 5 * time.Minute  // between announcements
	kindsKeep      = 15 * time.Minute // an instance counts as there for so long
	kindsPage      = 1000
	strayEvery     = time.Minute
	strayTime      = time.Second // a turn
	unhandledWarn  = time.Minute
	unhandledKeep  = 24 * time.Hour
	unhandledKinds = 20 // a queue remembers so many
)

// UnhandledKind is a kind of messages that came to a queue and that its handler does not
// know.
type UnhandledKind struct {
	Kind     string
	Attempts int64 // that failed for it, in this process
	Last     time.Time
}

// announced is the record of an instance and queue.
type announced struct {
	Kinds []string `json:"kinds,omitempty"`
	All   bool     `json:"all,omitempty"`
}

func kindsKey(queue, instance string) string { return driver.DeriveID(kindSpace, queue, instance) }

// kindsSpace is where the instances of a queue say what they handle.
func kindsSpace(queue string) string { return driver.DeriveID(kindSpace, queue) }

// announce says, from time to time, which kinds are handled here.
func (e *Engine) announce(ctx context.Context) error {
	tick := time.NewTicker(kindsEvery)
	defer tick.Stop()
	for {
		var batch driver.Batch
		e.mu.Lock()
		for queue, c := range e.consumers {
			h, names := c.options().handler.(driver.KindHandler)
			if !names {
				continue
			}
			var a announced
			a.Kinds, a.All = h.Kinds()
			value, err := json.Marshal(a)
			if err != nil || len(value) > driver.MaxRecordSize {
				value = []byte(`{"all":true}`)
			}
			batch.Records = append(batch.Records, driver.RecordWrite{Space: kindsSpace(queue), Key: kindsKey(queue, e.opts.Instance),
				Value: value, Version: driver.AnyVersion, Expires: kindsKeep})
		}
		e.mu.Unlock()
		batch.Relaxed = true
		if len(batch.Records) > 0 {
			if _, err := e.store.Apply(ctx, batch); err != nil && ctx.Err() == nil && !errors.Is(err, redrive.ErrClosed) {
				e.log.LogAttrs(ctx, slog.LevelWarn, "cannot announce which kinds are handled here", slog.Any("error", err))
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-e.rehandled:
		case <-tick.C:
		}
	}
}

// stray is the kinds that a turn of the consumer leaves to other instances; it claims any
// other, handled or not. nil: only what is handled is claimed.
type stray struct {
	others []string
	until  time.Time
}

// strayTurn returns the turn of each minute in which unknown kinds are claimed, too.
func (c *consumer) strayTurn(now time.Time) *stray {
	handled, all := driver.KindsOf(c.options().handler)
	switch {
	case all:
		return nil
	case c.stray != nil && now.Before(c.stray.until):
		return c.stray
	case c.strayAt.IsZero(): // whoever starts with us may still have to say what it handles
		c.strayAt = now.Add(strayEvery)
		return nil
	case now.Before(c.strayAt):
		return nil
	}
	c.strayAt = now.Add(strayEvery)
	s := &stray{until: now.Add(strayTime)}
	own, after := kindsKey(c.queue, c.e.opts.Instance), ""
	for {
		list, err := c.e.store.ListRecords(c.e.run, kindsSpace(c.queue), after, kindsPage)
		if err != nil {
			return nil // the next turn asks again
		}
		for i := range list {
			after = list[i].Key
			var a announced
			if after == own {
				continue
			}
			if err := json.Unmarshal(list[i].Value, &a); err != nil || a.All {
				return nil
			}
			s.others = append(s.others, a.Kinds...)
		}
		if len(list) < kindsPage {
			break
		}
	}
	slices.Sort(s.others)
	s.others = slices.DeleteFunc(slices.Compact(s.others), func(kind string) bool { return slices.Contains(handled, kind) })
	return s
}

// kinds combines what the handler handles with what the gates allow.
func (c *consumer) kinds(o *consumerConfig, g *grants) (only, except []string) {
	only, except = g.kinds, g.exceptKinds
	handled, all := driver.KindsOf(o.handler)
	switch {
	case all:
		return only, except
	case len(only) == 0 && c.stray != nil:
		return nil, append(slices.Clone(except), c.stray.others...)
	case len(only) == 0 && len(handled) > 0:
		return handled, except
	}
	only = slices.DeleteFunc(slices.Clone(only), func(kind string) bool { return !slices.Contains(handled, kind) })
	if len(only) == 0 { // nothing is allowed
		none := []string{""}
		return none, none
	}
	return only, except
}

// unhandled counts an attempt that found no handler, and warns once a minute and kind. Of
// many kinds it remembers some.
func (c *consumer) unhandled(d *redrive.Delivery, settled *driver.Settlement, now time.Time) {
	c.e.observe(&Observation{Occasion: OnUnhandled, Queue: c.queue, Delivery: d, Settlement: settled})
	c.mu.Lock()
	at := slices.IndexFunc(c.unknown, func(k UnhandledKind) bool { return k.Kind == d.Kind })
	warn := at < 0 || now.Sub(c.warned[d.Kind]) >= unhandledWarn
	if at < 0 && len(c.unknown) == unhandledKinds {
		at = 0 // that of longest ago gives way
		for i := range c.unknown {
			if c.unknown[i].Last.Before(c.unknown[at].Last) {
				at = i
			}
		}
		if now.Sub(c.unknown[at].Last) < unhandledWarn {
			c.mu.Unlock()
			return
		}
		delete(c.warned, c.unknown[at].Kind)
		c.unknown[at] = UnhandledKind{Kind: d.Kind}
	}
	if at < 0 {
		at = len(c.unknown)
		c.unknown = append(c.unknown, UnhandledKind{Kind: d.Kind})
	}
	c.unknown[at].Attempts++
	c.unknown[at].Last = now
	if warn {
		if c.warned == nil {
			c.warned = make(map[string]time.Time)
		}
		c.warned[d.Kind] = now
	}
	c.mu.Unlock()
	if warn {
		c.e.log.LogAttrs(c.e.base, slog.LevelWarn, "no handler for kind", slog.String("queue", c.queue), slog.String("kind", d.Kind),
			slog.String("id", d.ID), slog.String("outcome", settled.Outcome.String()), slog.Duration("again_in", settled.After))
	}
}

// unhandledLocked returns the kinds of the last day that still have no handler.
func (c *consumer) unhandledLocked(now time.Time) (list []UnhandledKind) {
	var handled []string
	if h, names := c.options().handler.(driver.KindHandler); names {
		var all bool
		if handled, all = h.Kinds(); all {
			return nil
		}
	}
	for _, k := range c.unknown {
		if !slices.Contains(handled, k.Kind) && now.Sub(k.Last) < unhandledKeep {
			list = append(list, k)
		}
	}
	slices.SortFunc(list, func(a, b UnhandledKind) int { return strings.Compare(a.Kind, b.Kind) })
	return list
}
