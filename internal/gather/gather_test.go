package gather

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redrive/redrive"
)

// rig has calls of numbers, each group of which takes a second.
func rig(groups int) (*Calls[int], func() [][]int) {
	done := make(chan [][]int, 1)
	done <- nil
	g := &Calls[int]{Groups: groups, Items: 5, Bytes: 100, Do: func(group []int) {
		<-time.After(time.Second)
		done <- append(<-done, group)
	}}
	return g, func() [][]int { all := <-done; done <- all; return all }
}

func start(t *testing.T, g *Calls[int], n int, size Size) {
	go func() {
		if err := g.Call(t.Context(), n, size); err != nil {
			t.Error(n, err)
		}
	}()
	synctest.Wait()
}

func TestWhatWaitsGoesTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, done := rig(1)
		for n := range 10 {
			start(t, g, n, Size{Items: 1, Bytes: 1})
		}
		start(t, g, 10, Size{Items: 9, Bytes: 1}) // larger than a group
		start(t, g, 11, Size{Items: 1, Bytes: 60})
		start(t, g, 12, Size{Items: 1, Bytes: 60})
		start(t, g, 13, Size{Items: 1, Single: true})
		start(t, g, 14, Size{Items: 1})
		g.Close()
		want := [][]int{{0}, {1, 2, 3, 4, 5}, {6, 7, 8, 9}, {10}, {11}, {12}, {13}, {14}}
		if got := done(); !slices.EqualFunc(got, want, slices.Equal) {
			t.Errorf("%v, want %v", got, want)
		}
		if err := g.Call(t.Context(), 1, Size{}); !errors.Is(err, redrive.ErrClosed) {
			t.Error(err)
		}
	})
}

func TestGroupsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, done := rig(2)
		began := time.Now()
		for n := range 4 {
			start(t, g, n, Size{Items: 5})
		}
		g.Close()
		if took := time.Since(began); took != 2*time.Second || len(done()) != 4 {
			t.Error(took, done())
		}
	})
}

func TestACallIsWithdrawnUntilItBegins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, done := rig(1)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second/2)
		defer cancel()
		begun := make(chan error, 1)
		go func() { begun <- g.Call(ctx, 0, Size{Items: 1}) }()
		synctest.Wait()
		if err := g.Call(ctx, 1, Size{Items: 1}); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		if err := <-begun; err != nil {
			t.Error(err)
		}
		g.Close()
		if got := done(); len(got) != 1 {
			t.Error(got)
		}
	})
}
