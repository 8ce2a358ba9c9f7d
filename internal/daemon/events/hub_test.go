package events_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/internal/daemon/events"
	"github.com/redrive/redrive/internal/wire"
)

// world is what there is to see. Whose rights are a prefix sees the keys that have it.
type world struct {
	mu      sync.Mutex
	items   map[string]map[string]any
	err     error
	looks   int
	renders int
	took    time.Duration
}

func (w *world) look(_ context.Context, topics map[string]bool) (events.View[string], error) {
	<-time.After(w.took)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.looks++
	if w.err != nil {
		return nil, w.err
	}
	return func(prefix, topic string) map[string]any {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.renders++
		if !topics[topic] {
			return nil
		}
		seen := maps.Clone(w.items[topic])
		maps.DeleteFunc(seen, func(k string, _ any) bool { return !strings.HasPrefix(k, prefix) })
		return seen
	}, nil
}

func (w *world) set(topic, key string, v any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.items == nil {
		w.items = make(map[string]map[string]any)
	}
	if w.items[topic] == nil {
		w.items[topic] = make(map[string]any)
	}
	if v == nil {
		delete(w.items[topic], key)
		return
	}
	w.items[topic][key] = v
}

func (w *world) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.err = err
}

func (w *world) counts() (looks, renders int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.looks, w.renders
}

// heard is what a listener got, as "+key=item", "-key", or "!" for trouble; a whole round begins with "=".
func heard(l *events.Listener) (all []string) {
	synctest.Wait()
	for {
		select {
		case r, open := <-l.Rounds():
			if !open {
				return append(all, "end")
			}
			if r.Whole {
				all = append(all, "=")
			}
			for _, e := range r.Events {
				if !l.Wants(e.Topic) {
					continue
				}
				var w wire.Event
				if err := json.Unmarshal(e.Data, &w); err != nil {
					panic(err)
				}
				switch {
				case w.Topic == events.Problem && !w.Removed:
					all = append(all, "!")
				case w.Topic == events.Problem:
					all = append(all, "ok")
				case w.Removed:
					all = append(all, "-"+w.Key)
				default:
					all = append(all, fmt.Sprintf("+%s=%v", w.Key, w.Item))
				}
			}
		default:
			return all
		}
	}
}

func expect(t *testing.T, l *events.Listener, want ...string) {
	t.Helper()
	if got := heard(l); !slices.Equal(got, want) {
		t.Errorf("heard %q, want %q", got, want)
	}
}

func listen(t *testing.T, h *events.Hub[string], rights string, topics ...string) *events.Listener {
	t.Helper()
	l, err := h.Listen(rights, rights, topics...)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func second() { <-time.After(time.Second + time.Millisecond) }

func TestListenersHearWhatChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := new(world)
		w.set("queues", "a1", 1)
		w.set("queues", "b1", 1)
		w.set("plans", "a9", 1)
		h := events.New(w.look)
		defer h.Close()
		all := listen(t, h, "", "queues", "plans")
		confined := listen(t, h, "a", "queues")
		expect(t, all, "=", "+a9=1", "+a1=1", "+b1=1")
		expect(t, confined, "=", "+a1=1")
		second()
		expect(t, all)
		w.set("queues", "a1", 2)
		w.set("queues", "b1", nil)
		w.set("plans", "a8", 1)
		second()
		expect(t, all, "+a8=1", "+a1=2", "-b1")
		expect(t, confined, "+a1=2")

		// Who comes later gets everything, and the others nothing for it.
		late := listen(t, h, "", "queues")
		expect(t, late, "=", "+a1=2")
		expect(t, all)
		w.set("queues", "a3", 1)
		second()
		for _, l := range []*events.Listener{all, confined, late} {
			expect(t, l, "+a3=1")
		}
	})
}

// The collector looks once for all, renders once for those who see the same, and only while
// somebody listens.
func TestOneCollector(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := new(world)
		h := events.New(w.look)
		defer h.Close()
		second()
		if looks, _ := w.counts(); looks != 0 {
			t.Errorf("%d looks for nobody", looks)
		}
		var all []*events.Listener
		for range 50 {
			all = append(all, listen(t, h, "", "queues"))
		}
		synctest.Wait()
		before, rendered := w.counts()
		for range 10 {
			second()
		}
		synctest.Wait()
		looks, renders := w.counts()
		if looks-before != 10 || renders-rendered != 10 {
			t.Errorf("%d looks and %d renders in ten seconds", looks-before, renders-rendered)
		}
		for _, l := range all {
			l.Leave()
			l.Leave()
		}
		synctest.Wait()
		before, _ = w.counts()
		second()
		if looks, _ := w.counts(); looks != before {
			t.Error("it looks for nobody")
		}
		l := listen(t, h, "", "queues")
		expect(t, l, "=")
		l.Leave()
	})
}

// A store that is slow is looked at for a tenth of the time, at most.
func TestLooksTakeATenthOfTheTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{took: time.Second}
		h := events.New(w.look)
		defer h.Close()
		defer listen(t, h, "", "queues").Leave()
		for range 20 {
			listen(t, h, "", "queues").Leave() // nor does who comes make it look more often
			<-time.After(time.Minute / 20)
		}
		if looks, _ := w.counts(); looks > 6 {
			t.Errorf("%d looks of a second in a minute", looks)
		}
	})
}

func TestTheSlowOneIsCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := new(world)
		w.set("queues", "a", 0)
		h := events.New(w.look)
		defer h.Close()
		slow, quick, other := listen(t, h, "", "queues"), listen(t, h, "", "queues"), listen(t, h, "", "plans")
		for i := range 70 {
			w.set("queues", "a", i+1)
			second()
			_ = heard(quick)
		}
		if got := heard(slow); len(got) == 0 || got[len(got)-1] != "end" || !errors.Is(slow.Why(), events.ErrSlow) {
			t.Errorf("it heard %q, and ended with %v", got, slow.Why())
		}
		w.set("queues", "a", -1)
		second()
		expect(t, quick, "+a=-1")
		expect(t, other, "=") // what it does not want does not fill its queue
		again := listen(t, h, "", "queues")
		expect(t, again, "=", "+a=-1")
	})
}

func TestThereAreOnlySoManyListeners(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := events.New(new(world).look)
		var first *events.Listener
		for i := range events.MaxListeners {
			l := listen(t, h, fmt.Sprint(i%7), "queues")
			if i == 0 {
				first = l
			}
		}
		if _, err := h.Listen("", "", "queues"); !errors.Is(err, events.ErrFull) {
			t.Errorf("one more: %v", err)
		}
		first.Leave()
		l := listen(t, h, "", "queues")
		h.Close()
		if got := heard(l); got[len(got)-1] != "end" || !errors.Is(l.Why(), events.ErrClosed) {
			t.Errorf("%q, %v", got, l.Why())
		}
		if _, err := h.Listen("", "", "queues"); !errors.Is(err, events.ErrClosed) {
			t.Errorf("after its end: %v", err)
		}
	})
}

// That a store is away is heard once, also by who comes meanwhile, and so is its return.
func TestTrouble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := new(world)
		w.set("queues", "a", 1)
		h := events.New(w.look)
		defer h.Close()
		l := listen(t, h, "", "queues")
		expect(t, l, "=", "+a=1")
		w.fail(redrive.ErrUnavailable)
		second()
		second()
		expect(t, l, "!")
		late := listen(t, h, "", "queues")
		second()
		expect(t, late, "!")
		w.fail(nil)
		second()
		expect(t, late, "=", "+a=1")
		expect(t, l, "ok")
		second()
		expect(t, l)
	})
}
