package engine

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/redrive/redrive"
)

// Delays between restarts of a supervised goroutine.
const (
	restartMin = 50 * time.Millisecond
	restartMax = 10 * time.Second
)

// supervisor runs the engine's long-lived goroutines: one that fails or panics is
// restarted with a growing delay, counted, and makes the engine not ready while it
// is down.
type supervisor struct {
	log      *slog.Logger
	observer Observer
	wg       sync.WaitGroup
	mu       sync.Mutex
	down     map[string]error
}

// start runs f until it returns nil or ctx ends.
func (s *supervisor) start(ctx context.Context, name string, f func(ctx context.Context) error) {
	s.wg.Go(func() {
		delay := restartMin
		for ctx.Err() == nil {
			began := time.Now()
			err := guarded(ctx, f)
			if err == nil || ctx.Err() != nil {
				s.set(name, nil)
				return
			}
			if time.Since(began) > restartMax {
				delay = restartMin
			}
			s.set(name, err)
			s.log.LogAttrs(ctx, slog.LevelError, "goroutine panicked: restarting",
				slog.String("goroutine", name), slog.Duration("in", delay), slog.Any("error", err))
			if s.observer != nil {
				s.observer.Observe(&Observation{Occasion: OnRestart, Text: name, Err: err})
			}
			select {
			case <-ctx.Done():
			case <-time.After(delay):
			}
			delay = min(2*delay, restartMax)
			s.set(name, nil)
		}
	})
}

// guarded calls f and turns a panic into an error.
func guarded(ctx context.Context, f func(ctx context.Context) error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = &redrive.PanicError{Value: r, Stack: string(debug.Stack())}
		}
	}()
	return f(ctx)
}

func (s *supervisor) set(name string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		delete(s.down, name)
		return
	}
	s.down[name] = err
}

// ready reports a goroutine that is down.
func (s *supervisor) ready() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(s.down)) {
		return fmt.Errorf("%s is down: %w", name, s.down[name])
	}
	return nil
}
