package engine

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// Who names its kinds claims only those: a consumer whose handler knows them, and a pull
// worker that asks for some. So that what nobody handles does not wait unseen for ever, each
// instance says in a record which kinds its consumer and its workers handle, and once a
// minute it claims whatever nobody else handles, too. That fails with
// [redrive.ErrNoHandler], is retried by its policy, so that a deploy may catch up, and is
// dead as unroutable at its end.
const (
	kindSpace      = "kinds"
	kindsEvery     = 5 * time.Minute  // between announcements
	kindsKeep      = 15 * time.Minute // an instance, or a worker that asked, counts as there for so long
	kindsPage      = 1000
	kindsAsked     = 1000 // of a queue's workers; of more, they count as any
	strayEvery     = time.Minute
	strayTime      = time.Second // a turn
	unhandledWarn  = time.Minute
	unhandledKeep  = 24 * time.Hour
	unhandledKinds = 20 // a queue remembers so many
)

// UnhandledKind is a kind of messages that came to a queue and that nobody there knows.
type UnhandledKind struct {
	Kind     string
	Attempts int64 // that failed for it, in this process
	Last     time.Time
}

// handled is the kinds that are handled of a queue, as an instance announces them.
type handled struct {
	Kinds []string `json:"kinds,omitempty"`
	All   bool     `json:"all,omitempty"`
}

func (h *handled) add(kinds []string, all bool) {
	h.Kinds, h.All = append(h.Kinds, kinds...), h.All || all
}

func kindsKey(queue, instance string) string { return driver.DeriveID(kindSpace, queue, instance) }

// kindsSpace is where the instances of a queue say what they handle.
func kindsSpace(queue string) string { return driver.DeriveID(kindSpace, queue) }

// announceSoon has the handled kinds announced anew.
func (e *Engine) announceSoon() {
	select {
	case e.rehandled <- struct{}{}:
	default: // it is to be done already
	}
}

// announce says, from time to time, which kinds are handled here.
func (e *Engine) announce(ctx context.Context) error {
	tick := time.NewTicker(kindsEvery)
	defer tick.Stop()
	for {
		batch := driver.Batch{Relaxed: true}
		for _, queue := range e.worked() {
			h, named := e.handledHere(queue)
			if !named {
				continue
			}
			slices.Sort(h.Kinds)
			h.Kinds = slices.Compact(h.Kinds)
			value, err := json.Marshal(h)
			if err != nil || len(value) > driver.MaxRecordSize {
				value = []byte(`{"all":true}`)
			}
			batch.Records = append(batch.Records, driver.RecordWrite{Space: kindsSpace(queue), Key: kindsKey(queue, e.opts.Instance),
				Value: value, Version: driver.AnyVersion, Expires: kindsKeep})
		}
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

// worked returns the queues that have a consumer or pull workers here.
func (e *Engine) worked() []string {
	e.mu.Lock()
	queues, pullers := slices.Collect(maps.Keys(e.consumers)), e.pullers
	e.mu.Unlock()
	for _, p := range pullers {
		queues = p.addQueues(queues)
	}
	slices.Sort(queues)
	return slices.Compact(queues)
}

// handledHere returns what the consumer and the pull workers of a queue handle here.
// named: it is to be announced; a consumer that takes any kind costs no record.
func (e *Engine) handledHere(queue string) (h handled, named bool) {
	e.mu.Lock()
	c, pullers := e.consumers[queue], e.pullers
	e.mu.Unlock()
	if c != nil {
		_, named = c.options().handler.(driver.KindHandler)
		h.add(driver.KindsOf(c.options().handler))
	}
	now := time.Now()
	for _, p := range pullers {
		named = p.addHandled(&h, queue, now) || named
	}
	return h, named
}

// handledAnywhere returns the kinds of a queue that some instance handles, this one
// included; all: one handles any.
func (e *Engine) handledAnywhere(queue string) (kinds []string, all bool, err error) {
	known, _ := e.handledHere(queue)
	own, after := kindsKey(queue, e.opts.Instance), ""
	for !known.All {
		list, err := e.store.ListRecords(e.run, kindsSpace(queue), after, kindsPage)
		if err != nil {
			return nil, false, err
		}
		for i := range list {
			var other handled
			if after = list[i].Key; after == own {
				continue
			}
			err := json.Unmarshal(list[i].Value, &other)
			known.add(other.Kinds, other.All || err != nil)
		}
		if len(list) < kindsPage {
			break
		}
	}
	slices.Sort(known.Kinds)
	return slices.Compact(known.Kinds), known.All, nil
}

// stray is the kinds that a turn of the consumer leaves to others; it claims any other,
// handled or not. nil: only what is handled is claimed.
type stray struct {
	others []string
	until  time.Time
}

// strayTurn returns the turn of each minute in which unknown kinds are claimed, too.
func (c *consumer) strayTurn(now time.Time) *stray {
	own, all := driver.KindsOf(c.options().handler)
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
	others, all, err := c.e.handledAnywhere(c.queue)
	if err != nil || all {
		return nil // the next turn asks again
	}
	return &stray{until: now.Add(strayTime), others: slices.DeleteFunc(others, func(kind string) bool { return slices.Contains(own, kind) })}
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

// unhandled is the kinds that came to a queue and found no handler. Of many it remembers
// some. Its zero value is ready.
type unhandled struct {
	mu     sync.Mutex
	kinds  []UnhandledKind
	warned map[string]time.Time
}

// note counts an attempt that found no handler, and warns once a minute and kind.
func (u *unhandled) note(e *Engine, d *redrive.Delivery, settled *driver.Settlement, now time.Time) {
	e.observe(&Observation{Occasion: OnUnhandled, Queue: d.Queue, Delivery: d, Settlement: settled})
	if u.count(d.Kind, now) {
		e.log.LogAttrs(e.base, slog.LevelWarn, "no handler for kind", slog.String("queue", d.Queue), slog.String("kind", d.Kind),
			slog.String("id", d.ID), slog.String("outcome", settled.Outcome.String()), slog.Duration("again_in", settled.After))
	}
}

// count counts an attempt, and reports whether it is time to warn.
func (u *unhandled) count(kind string, now time.Time) (warn bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	at := slices.IndexFunc(u.kinds, func(k UnhandledKind) bool { return k.Kind == kind })
	warn = at < 0 || now.Sub(u.warned[kind]) >= unhandledWarn
	if at < 0 && len(u.kinds) == unhandledKinds {
		at = 0 // that of longest ago gives way
		for i := range u.kinds {
			if u.kinds[i].Last.Before(u.kinds[at].Last) {
				at = i
			}
		}
		if now.Sub(u.kinds[at].Last) < unhandledWarn {
			return false
		}
		delete(u.warned, u.kinds[at].Kind)
		u.kinds[at] = UnhandledKind{Kind: kind}
	}
	if at < 0 {
		at = len(u.kinds)
		u.kinds = append(u.kinds, UnhandledKind{Kind: kind})
	}
	u.kinds[at].Attempts++
	u.kinds[at].Last = now
	if warn {
		if u.warned == nil {
			u.warned = make(map[string]time.Time)
		}
		u.warned[kind] = now
	}
	return warn
}

// list returns the kinds of the last day but those that are handled by now.
func (u *unhandled) list(by []string, now time.Time) (list []UnhandledKind) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, k := range u.kinds {
		if !slices.Contains(by, k.Kind) && now.Sub(k.Last) < unhandledKeep {
			list = append(list, k)
		}
	}
	slices.SortFunc(list, func(a, b UnhandledKind) int { return strings.Compare(a.Kind, b.Kind) })
	return list
}

// unhandled returns the kinds of the last day that still have no handler.
func (c *consumer) unhandled(now time.Time) []UnhandledKind {
	h, names := c.options().handler.(driver.KindHandler)
	if !names {
		return c.unknown.list(nil, now)
	}
	kinds, all := h.Kinds()
	if all {
		return nil
	}
	return c.unknown.list(kinds, now)
}
