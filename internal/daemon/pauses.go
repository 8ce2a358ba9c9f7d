package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/engine"
)

const (
	pauseSpace    = "pauses"
	pauseInterval = 3 * time.Second // until other daemons follow
	pausePage     = 100
)

// pause is what somebody paused, as it is stored.
type pause struct {
	Queue  string    `json:"queue"`
	Target string    `json:"target,omitempty"`
	Reason string    `json:"reason"`
	By     string    `json:"by,omitempty"` // who paused it
	Since  time.Time `json:"since,omitzero"`
	Until  time.Time `json:"until,omitzero"`
}

// pauses keeps what people paused in the store, so that it holds in every daemon and
// after a restart. What the engine pauses by itself is its own.
type pauses struct {
	a *app

	mu    sync.Mutex
	known map[string]pause // by key, as they are in force here
}

func newPauses(a *app) *pauses { return &pauses{a: a, known: make(map[string]pause)} }

func pauseKey(queue, target string) string { return driver.DeriveID(pauseSpace, queue, target) }

// set pauses durably.
func (p *pauses) set(ctx context.Context, queue, target, reason, by string, d time.Duration) error {
	now, err := p.a.store.Now(ctx)
	if err != nil {
		return err
	}
	v := pause{Queue: queue, Target: target, Reason: reason, By: by, Since: now}
	if d > 0 {
		v.Until = now.Add(d)
	}
	value, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if err := p.write(ctx, pauseKey(queue, target), value, d); err != nil {
		return err
	}
	p.lift(queue, target) // so that a new reason and time show
	return p.sync(ctx)
}

// end resumes durably.
func (p *pauses) end(ctx context.Context, queue, target string) error {
	if err := p.write(ctx, pauseKey(queue, target), nil, 0); err != nil {
		return err
	}
	p.lift(queue, target) // also what the engine paused by itself
	return p.sync(ctx)
}

// inForce returns what people paused, by key.
func (p *pauses) inForce() map[string]pause {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.known)
}

func (p *pauses) write(ctx context.Context, key string, value []byte, keep time.Duration) error {
	_, err := p.a.store.Apply(ctx, driver.Batch{Records: []driver.RecordWrite{{Space: pauseSpace, Key: key, Value: value, Version: driver.AnyVersion, Expires: keep}}})
	return err
}

func (p *pauses) lift(queue, target string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.known, pauseKey(queue, target))
	p.a.engine.Resume(queue, target)
	p.a.pull.Resume(queue, target)
}

// run follows what other daemons pause, until ctx ends.
func (p *pauses) run(ctx context.Context) {
	tick := time.NewTicker(pauseInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if err := p.sync(ctx); err != nil && ctx.Err() == nil {
			p.a.log.LogAttrs(ctx, slog.LevelWarn, "cannot read pauses", slog.Any("error", err))
		}
	}
}

// sync brings into force what the store holds.
func (p *pauses) sync(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	now, err := p.a.store.Now(ctx)
	if err != nil {
		return err
	}
	stored, err := readPauses(ctx, p.a.store)
	if err != nil {
		return err
	}
	status := make(map[string]engine.QueueStatus)
	for _, s := range p.a.engine.Status() {
		status[s.Queue] = s
	}
	for key, v := range stored {
		p.enforce(key, v, now, status)
	}
	for key, v := range p.known {
		if _, ok := stored[key]; !ok {
			delete(p.known, key)
			p.a.engine.Resume(v.Queue, v.Target)
			p.a.pull.Resume(v.Queue, v.Target)
		}
	}
	return nil
}

// readPauses returns what a store holds, by key.
func readPauses(ctx context.Context, store driver.Store) (map[string]pause, error) {
	stored := make(map[string]pause)
	for after := ""; ; {
		records, err := store.ListRecords(ctx, pauseSpace, after, pausePage)
		if err != nil {
			return nil, err
		}
		for i := range records {
			var v pause
			if err := json.Unmarshal(records[i].Value, &v); err == nil { // else it is no pause of ours
				stored[records[i].Key] = v
			}
			after = records[i].Key
		}
		if len(records) < pausePage {
			return stored, nil
		}
	}
}

// CopyPauses brings what people paused, in a queue or in all (""), into another store, and returns
// how many pauses that are. What is paused there already stays as it is.
func CopyPauses(ctx context.Context, from, to driver.Store, queue string) (copied int, err error) {
	stored, err := readPauses(ctx, from)
	if err != nil {
		return 0, err
	}
	now, err := from.Now(ctx)
	if err != nil {
		return 0, err
	}
	for key, v := range stored {
		keep := time.Duration(0)
		if !v.Until.IsZero() {
			keep = max(v.Until.Sub(now), time.Microsecond)
		}
		if queue != "" && v.Queue != queue {
			continue
		}
		value, err := json.Marshal(v)
		if err != nil {
			return copied, err
		}
		_, err = to.Apply(ctx, driver.Batch{Records: []driver.RecordWrite{{Space: pauseSpace, Key: key, Value: value, Expires: keep}}})
		if errors.Is(err, redrive.ErrVersion) {
			continue
		}
		if err != nil {
			return copied, err
		}
		copied++
	}
	return copied, nil
}

// enforce pauses what is not paused yet; a queue may be consumed only since a moment.
func (p *pauses) enforce(key string, v pause, now time.Time, status map[string]engine.QueueStatus) {
	left := time.Duration(0)
	if !v.Until.IsZero() {
		if left = v.Until.Sub(now); left <= 0 {
			return
		}
	}
	before, known := p.known[key]
	if !known || before != v {
		p.a.pull.Pause(v.Queue, v.Target, v.Reason, left)
	}
	s, consumed := status[v.Queue]
	paused := slices.ContainsFunc(s.Paused, func(s engine.PauseStatus) bool { return s.Target == v.Target })
	if consumed && (!paused || known && before != v) {
		p.a.engine.Pause(v.Queue, v.Target, v.Reason, left)
	}
	p.known[key] = v
}
