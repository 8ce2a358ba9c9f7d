package adaptive_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redrive/redrive/guard"
	"github.com/redrive/redrive/guard/adaptive"
)

// TestHang lets a provider hang: no more calls are in flight than the limiter allows,
// and those that are beyond it do not count against the provider.
func TestHang(t *testing.T) {
	release := make(chan struct{})
	var inFlight atomic.Int64
	g, err := guard.New(guard.Config[int, int]{Name: "calls", Providers: []guard.Provider[int, int]{{Name: "a", Limiter: adaptive.New(adaptive.Limits{Max: 5}),
		Call: func(context.Context, int) (int, error) {
			inFlight.Add(1)
			<-release
			return 1, nil
		}}}})
	if err != nil {
		t.Fatal(err)
	}
	var answered, refused atomic.Int64
	var calls sync.WaitGroup
	for range 50 {
		calls.Go(func() {
			switch _, err := g.Do(t.Context(), 1); {
			case err == nil:
				answered.Add(1)
			case errors.Is(err, guard.ErrUnavailable):
				if refused.Add(1) == 45 {
					close(release)
				}
			default:
				t.Error(err)
			}
		})
	}
	calls.Wait()
	if inFlight.Load() != 5 || answered.Load() != 5 {
		t.Errorf("%d calls were made and %d answered, want 5", inFlight.Load(), answered.Load())
	}
	for _, s := range g.Snapshot() {
		if s.State != "healthy" || s.InUse != 0 {
			t.Errorf("it is %s with %d in use", s.State, s.InUse)
		}
	}
}

func BenchmarkDo(b *testing.B) {
	g, err := guard.New(guard.Config[int, int]{Name: "calls", Providers: []guard.Provider[int, int]{{Name: "a", Limiter: adaptive.New(adaptive.Limits{}),
		Call: func(context.Context, int) (int, error) { return 1, nil }}}})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := g.Do(b.Context(), 1); err != nil {
			b.Fatal(err)
		}
	}
}
