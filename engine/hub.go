package engine

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// watchPause is how long, for each queue that is watched, the hub lets events gather
// when they come faster than that: sources look at all watched queues for each event,
// so that one busy queue among ten thousand idle ones would keep a processor busy. It
// delays only the first message of a queue that was idle, and only among thousands.
const watchPause = time.Microsecond

// watcher receives what a source says about its queue.
type watcher interface {
	notify(ev *driver.Event, now time.Time)
}

// hub keeps the one Wait call of a source and wakes the consumers whose queues
// changed. An idle queue costs an entry in its list, no goroutine.
type hub struct {
	src     driver.Source
	mu      sync.Mutex
	feeds   map[string]watcher
	watches []driver.Watch
	index   map[string]int     // of a queue in watches
	cancel  context.CancelFunc // ends the Wait in progress because watches changed
	changed chan struct{}      // something was added while there was nothing to watch
}

func newHub(src driver.Source) *hub {
	return &hub{src: src, feeds: make(map[string]watcher), index: make(map[string]int), changed: make(chan struct{}, 1)}
}

func (h *hub) add(queue string, w watcher) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.feeds[queue] = w
	h.index[queue] = len(h.watches)
	h.watches = append(h.watches, driver.Watch{Queue: queue})
	h.poke()
}

func (h *hub) remove(queue string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	i, ok := h.index[queue]
	if !ok {
		return
	}
	last := len(h.watches) - 1
	h.watches[i] = h.watches[last]
	h.index[h.watches[i].Queue] = i
	h.watches = h.watches[:last]
	delete(h.index, queue)
	delete(h.feeds, queue)
	h.poke()
}

func (h *hub) poke() {
	if h.cancel != nil {
		h.cancel()
	}
	select {
	case h.changed <- struct{}{}:
	default:
	}
}

// run waits for events until ctx ends.
func (h *hub) run(ctx context.Context) error {
	var watches []driver.Watch
	for ctx.Err() == nil {
		h.mu.Lock()
		watches = append(watches[:0], h.watches...)
		wait, cancel := context.WithCancel(ctx)
		h.cancel = cancel
		h.mu.Unlock()
		if len(watches) == 0 {
			select {
			case <-h.changed:
			case <-ctx.Done():
			}
			cancel()
			continue
		}
		began := time.Now()
		events, err := h.src.Wait(wait, watches)
		poked := wait.Err() != nil
		cancel()
		switch {
		case errors.Is(err, redrive.ErrClosed):
			return nil
		case err != nil && !poked:
			return err
		}
		h.deliver(events)
		if d := time.Duration(len(watches)) * watchPause; d >= time.Millisecond && time.Since(began) < d {
			select {
			case <-time.After(d):
			case <-ctx.Done():
			}
		}
	}
	return nil
}

func (h *hub) deliver(events []driver.Event) {
	now := time.Now()
	for i := range events {
		ev := &events[i]
		h.mu.Lock()
		w := h.feeds[ev.Queue]
		if at, ok := h.index[ev.Queue]; ok {
			h.watches[at].Since = ev.Version
		}
		h.mu.Unlock()
		if w != nil {
			w.notify(ev, now)
		}
	}
}
