package guard

import (
	"context"
	"sync"
	"time"

	"github.com/redrive/redrive"
)

// keyRecheck is how often the store is asked whether a key still waits, as a message
// may end without this process.
const keyRecheck = time.Second

// keys are those of which a request waits, with how many as far as we know.
type keys struct {
	mu sync.Mutex
	m  map[string]*waiting
}

type waiting struct {
	n         int
	newest    string // its newest request that was put off here
	checkedAt time.Time
}

func (k *keys) add(key, id string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.m == nil {
		k.m = make(map[string]*waiting)
	}
	w := k.m[key]
	if w == nil {
		w = &waiting{checkedAt: time.Now()}
		k.m[key] = w
	}
	w.n++
	if id != "" {
		w.newest = id
	}
}

func (k *keys) done(key string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if w := k.m[key]; w != nil {
		if w.n--; w.n <= 0 {
			delete(k.m, key)
		}
	}
}

func (k *keys) forget(key string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.m, key)
}

// held reports whether the key waits, whether it is time to ask the store, and for which
// request.
func (k *keys) held(key string) (waits, ask bool, newest string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	w := k.m[key]
	if w == nil {
		return false, false, ""
	}
	if now := time.Now(); now.Sub(w.checkedAt) >= keyRecheck {
		w.checkedAt = now
		return true, true, w.newest
	}
	return true, false, ""
}

// keyWaits reports whether a request of the key waits.
func (g *Guard[Req, Resp]) keyWaits(ctx context.Context, key string) bool {
	waits, ask, newest := g.keys.held(key)
	if !ask || g.cfg.Store == nil {
		return waits
	}
	if g.beside() && newest != "" { // the sink cannot be looked into, but the outcome shows
		if s, err := g.statusBeside(ctx, newest); err != nil || !s.Ended() {
			return true
		}
	}
	for _, s := range []redrive.State{redrive.StateWaiting, redrive.StateLeased, redrive.StateBlocked} {
		page, err := g.cfg.Store.Find(ctx, redrive.Query{Queue: g.cfg.Queue, Key: key, State: s, Limit: 1})
		if err != nil || len(page.Entries) > 0 || !page.Complete {
			return true
		}
	}
	g.keys.forget(key)
	return false
}

// loadKeys finds the keys that wait since before this process.
func (g *Guard[Req, Resp]) loadKeys(ctx context.Context) error {
	if g.cfg.Store == nil || g.cfg.Deferral == nil {
		return nil
	}
	for _, s := range []redrive.State{redrive.StateWaiting, redrive.StateLeased, redrive.StateBlocked} {
		q := redrive.Query{Queue: g.cfg.Queue, State: s, Limit: redrive.MaxPage}
		for {
			page, err := g.cfg.Store.Find(ctx, q)
			if err != nil {
				return err
			}
			for i := range page.Entries {
				if key := page.Entries[i].Key; key != "" {
					g.keys.add(key, "")
				}
			}
			if page.Next == "" {
				break
			}
			q.After = page.Next
		}
	}
	return nil
}
