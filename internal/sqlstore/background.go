package sqlstore

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// Spawn runs a long-lived function, again after a pause if it ends or panics, until ctx
// ends.
func Spawn(ctx context.Context, running *sync.WaitGroup, pause time.Duration, f func(ctx context.Context)) {
	running.Go(func() {
		for ctx.Err() == nil {
			func() {
				defer func() {
					if v := recover(); v != nil {
						slog.Error("store: background task panicked: restarting", "panic", v)
					}
				}()
				f(ctx)
			}()
			Sleep(ctx, pause)
		}
	})
}

// Sleep waits, or returns early when ctx ends.
func Sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
