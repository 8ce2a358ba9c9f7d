package sqlite

import (
	"os"
	"sync"
)

// syncer makes commits durable. The writer commits without a sync, and while one sync
// of the log is under way it prepares the next group: the log is written in order, so
// one sync covers every commit before it. Callers are answered after it.
type syncer struct {
	log  *os.File
	sync func(*os.File) error
	mu   sync.Mutex
	cond sync.Cond
	next []operation // committed, waiting for the next sync
	pos  *position   // to note after it; nil: none
	note func(position)
	busy bool // a sync is under way
	quit bool
	done chan struct{}
}

func newSyncer(log *os.File, sync func(*os.File) error, note func(position)) *syncer {
	y := &syncer{log: log, sync: sync, note: note, done: make(chan struct{})}
	y.cond.L = &y.mu
	return y
}

// add has operations answered after the next sync, and a position noted, if there is one.
func (y *syncer) add(group []operation, pos *position) {
	y.mu.Lock()
	if pos != nil {
		y.pos = pos
	}
	y.next = append(y.next, group...)
	y.mu.Unlock()
	y.cond.Signal()
}

// full reports that a group waits for the sync that is under way to end: one more
// commit would only make the groups smaller.
func (y *syncer) full() bool {
	y.mu.Lock()
	defer y.mu.Unlock()
	return y.busy && len(y.next) > 0
}

// run syncs until it is stopped. started is called whenever a sync begins, so
// that the writer goes on.
func (y *syncer) run(started func(), failed func(error) error) {
	defer close(y.done)
	var group []operation
	var broken error
	for {
		y.mu.Lock()
		y.busy = false
		for len(y.next) == 0 && !y.quit {
			y.cond.Wait()
		}
		if len(y.next) == 0 {
			y.mu.Unlock()
			return
		}
		group, y.next = y.next, group[:0]
		pos := y.pos
		y.pos = nil
		y.busy = true
		y.mu.Unlock()
		started()
		if broken == nil {
			if err := y.sync(y.log); err != nil {
				broken = failed(err)
			}
		}
		endAll(group, broken)
		clear(group)
		if pos != nil && broken == nil {
			y.note(*pos)
		}
	}
}

// stop ends the syncer after what was added is answered.
func (y *syncer) stop() {
	y.mu.Lock()
	y.quit = true
	y.mu.Unlock()
	y.cond.Signal()
	<-y.done
}
