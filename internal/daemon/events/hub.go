// Package events tells listeners what changes. One collector looks while anybody listens; what
// it finds is rendered once for all who may see the same.
package events

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/internal/problem"
	"github.com/redrive/redrive/internal/wire"
)

// Bounds.
const (
	MaxListeners = 200
	queued       = 64 // rounds that a listener may be behind
	restShare    = 10 // a look is followed by so many times its duration without one
	every        = time.Second
)

// Problem is the topic of events about the collector itself: its only item is there while it
// cannot look.
const Problem = "problem"

// Errors of Listen and of a listener that has ended.
var (
	ErrFull   = errors.New("there are too many listeners")
	ErrSlow   = errors.New("the listener is too slow")
	ErrClosed = errors.New("the daemon shuts down")
)

// Look reads what the topics are about, once for all listeners. The View that it returns renders the
// items of a topic for one audience, by key.
type Look[R any] func(ctx context.Context, topics map[string]bool) (View[R], error)

// View renders the items of a topic as those with the rights see them.
type View[R any] func(rights R, topic string) map[string]any

// Hub tells listeners of changes. All methods are safe for concurrent use.
type Hub[R any] struct {
	look   Look[R]
	prefix string // of the ids, so that they are unique among processes
	seed   maphash.Seed
	ctx    context.Context //nolint:containedctx // the hub's own life
	cancel context.CancelFunc
	wake   chan struct{}
	work   sync.WaitGroup

	mu        sync.Mutex
	audiences map[string]*audience[R]
	listeners int
	running   bool
	n         uint64 // of the newest event
}

// audience are listeners with the same rights.
type audience[R any] struct {
	rights    R
	listeners map[*Listener]struct{}
	known     map[string]map[string]uint64 // hashes by topic and key, of the collector
}

// Listener receives events until its channel is closed.
type Listener struct {
	rounds chan Round
	topics map[string]bool
	leave  func()

	// Guarded by the hub's lock.
	fresh    bool // it has not got everything yet
	troubled bool // it knows that the collector cannot look
	ended    bool
	why      error
}

// Round is what was found in one look. With Whole it is everything that there is, and what the
// listener knew before is void.
type Round struct {
	Whole  bool
	Events []Event
}

// Event is one change, with Data a [wire.Event] in JSON.
type Event struct {
	ID    string
	Topic string
	Data  []byte
}

// New returns a hub. It must be closed.
func New[R any](look Look[R]) *Hub[R] {
	h := &Hub[R]{look: look, prefix: redrive.NewID()[:18], seed: maphash.MakeSeed(), wake: make(chan struct{}, 1), audiences: make(map[string]*audience[R])}
	h.ctx, h.cancel = context.WithCancel(context.Background()) //nolint:gosec // Close calls it
	return h
}

// Close ends all listeners, and waits for the collector.
func (h *Hub[R]) Close() {
	h.cancel()
	h.mu.Lock()
	for _, a := range h.audiences {
		for l := range a.listeners {
			h.end(l, ErrClosed)
		}
	}
	h.mu.Unlock()
	h.work.Wait()
}

// Listen adds a listener, who first gets a whole round. Those with the same key have the same
// rights.
func (h *Hub[R]) Listen(key string, rights R, topics ...string) (*Listener, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.ctx.Err() != nil:
		return nil, ErrClosed
	case h.listeners >= MaxListeners:
		return nil, ErrFull
	}
	l := &Listener{rounds: make(chan Round, queued), topics: make(map[string]bool), fresh: true}
	for _, t := range topics {
		l.topics[t] = true
	}
	a := h.audiences[key]
	if a == nil {
		a = &audience[R]{rights: rights, listeners: make(map[*Listener]struct{}), known: make(map[string]map[string]uint64)}
		h.audiences[key] = a
	}
	a.listeners[l] = struct{}{}
	h.listeners++
	l.leave = func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.end(l, nil)
		if delete(a.listeners, l); len(a.listeners) == 0 && h.audiences[key] == a {
			delete(h.audiences, key)
		}
		h.rouse()
	}
	if !h.running {
		h.running = true
		h.work.Go(h.collect)
	}
	h.rouse()
	return l, nil
}

// end closes the channel of a listener, under the lock.
func (h *Hub[R]) end(l *Listener, why error) {
	if l.ended {
		return
	}
	l.ended, l.why = true, why
	h.listeners--
	close(l.rounds)
}

func (h *Hub[R]) rouse() {
	select {
	case h.wake <- struct{}{}:
	default:
	}
}

// Rounds returns what the listener gets. The channel is closed when the listener was too slow, and
// when the hub is closed; Why tells.
func (l *Listener) Rounds() <-chan Round { return l.rounds }

// Wants reports whether the listener asked for a topic.
func (l *Listener) Wants(topic string) bool { return topic == Problem || l.topics[topic] }

// Why is why the channel was closed. It may be called when it is.
func (l *Listener) Why() error { return l.why }

// Leave ends the listener. It may be called more than once.
func (l *Listener) Leave() { l.leave() }

// collect looks until nobody listens any more.
func (h *Hub[R]) collect() {
	for {
		topics, audiences := h.wanted()
		if topics == nil {
			return
		}
		began := time.Now()
		view, err := h.look(h.ctx, topics)
		for _, a := range audiences {
			if err != nil {
				h.trouble(a, err)
				continue
			}
			h.tell(a, view, topics)
		}
		took := time.Since(began)
		h.pause(restShare*took, nil)
		h.pause(every-(1+restShare)*took, h.wake)
	}
}

// pause waits, or until something happens.
func (h *Hub[R]) pause(d time.Duration, until <-chan struct{}) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-until:
	case <-h.ctx.Done():
	}
}

// wanted returns what to look at and for whom, or nothing where the collector ends.
func (h *Hub[R]) wanted() (topics map[string]bool, audiences []*audience[R]) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.listeners == 0 || h.ctx.Err() != nil {
		h.running = false
		return nil, nil
	}
	topics = make(map[string]bool)
	for _, a := range h.audiences {
		audiences = append(audiences, a)
		for l := range a.listeners {
			maps.Copy(topics, l.topics)
		}
	}
	return topics, audiences
}

// tell renders what an audience sees and sends what changed; to those who are new, everything.
func (h *Hub[R]) tell(a *audience[R], view View[R], topics map[string]bool) {
	wanted, fresh := h.wishes(a, topics)
	var all, changed []Event
	for _, topic := range slices.Sorted(maps.Keys(topics)) {
		if !wanted[topic] {
			delete(a.known, topic)
			continue
		}
		items, before := view(a.rights, topic), a.known[topic]
		now := make(map[string]uint64, len(items))
		for _, key := range slices.Sorted(maps.Keys(items)) {
			data, err := json.Marshal(wire.Event{Topic: topic, Key: key, Item: items[key]})
			if err != nil { // what the API answers can always be written
				continue
			}
			now[key] = maphash.Bytes(h.seed, data)
			was, known := before[key]
			same := known && was == now[key]
			if same && len(fresh) == 0 {
				continue
			}
			e := h.event(topic, data)
			all = append(all, e)
			if !same {
				changed = append(changed, e)
			}
		}
		for _, key := range slices.Sorted(maps.Keys(before)) {
			if _, there := now[key]; !there {
				data, _ := json.Marshal(wire.Event{Topic: topic, Key: key, Removed: true}) // strings always encode
				changed = append(changed, h.event(topic, data))
			}
		}
		a.known[topic] = now
	}
	h.send(a, fresh, all, changed)
}

// wishes returns the topics that somebody of an audience wants, and those who are new and want
// nothing but what was looked at.
func (h *Hub[R]) wishes(a *audience[R], looked map[string]bool) (topics map[string]bool, fresh map[*Listener]bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	topics, fresh = make(map[string]bool), make(map[*Listener]bool)
	for l := range a.listeners {
		maps.Copy(topics, l.topics)
		if l.fresh && l.within(looked) {
			fresh[l] = true
		}
	}
	return topics, fresh
}

func (h *Hub[R]) event(topic string, data []byte) Event {
	h.n++
	return Event{ID: fmt.Sprintf("%s-%d", h.prefix, h.n), Topic: topic, Data: data}
}

func (h *Hub[R]) send(a *audience[R], fresh map[*Listener]bool, all, changed []Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	var over []Event
	for l := range a.listeners {
		round := Round{Events: changed}
		switch {
		case l.ended, l.fresh && !fresh[l]: // it came while the collector looked
			continue
		case l.fresh:
			round = Round{Whole: true, Events: all}
			l.fresh = false
		case l.troubled:
			if over == nil {
				data, _ := json.Marshal(wire.Event{Topic: Problem, Key: Problem, Removed: true}) // strings always encode
				over = append([]Event{h.event(Problem, data)}, changed...)
			}
			round.Events = over
		}
		l.troubled = false
		h.put(l, round)
	}
}

func (l *Listener) within(topics map[string]bool) bool {
	for t := range l.topics {
		if !topics[t] {
			return false
		}
	}
	return true
}

// put hands a round to a listener, and cuts off one that does not follow; under the lock.
func (h *Hub[R]) put(l *Listener, r Round) {
	if !r.Whole && !slices.ContainsFunc(r.Events, func(e Event) bool { return l.Wants(e.Topic) }) {
		return
	}
	select {
	case l.rounds <- r:
	default:
		h.end(l, ErrSlow)
	}
}

// trouble tells an audience, once, that the collector cannot look.
func (h *Hub[R]) trouble(a *audience[R], err error) {
	if h.ctx.Err() != nil {
		return
	}
	data, _ := json.Marshal(wire.Event{Topic: Problem, Key: Problem, Item: problem.Of(err)}) // a problem always encodes
	e := h.event(Problem, data)
	h.mu.Lock()
	defer h.mu.Unlock()
	for l := range a.listeners {
		if !l.ended && !l.troubled {
			l.troubled = true
			h.put(l, Round{Events: []Event{e}})
		}
	}
}

// Of returns an event about the stream itself, which has no id.
func Of(e wire.Event) (Event, error) {
	data, err := json.Marshal(e)
	return Event{Topic: e.Topic, Data: data}, err
}

// Append writes an event in the format of server-sent events.
func (e *Event) Append(to []byte) []byte {
	if e.ID != "" {
		to = fmt.Appendf(to, "id: %s\n", e.ID)
	}
	return fmt.Appendf(to, "event: %s\ndata: %s\n\n", e.Topic, e.Data)
}
