package sqlstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

func TestEveryDurationFallsIntoOneBucket(t *testing.T) {
	var r Recorder
	var wg sync.WaitGroup
	took := append(driver.StatementBounds(), 0, time.Hour, time.Millisecond+1)
	for _, d := range took {
		wg.Go(func() { r.Observe("publish", d, nil) })
	}
	r.Observe("claim", time.Second, nil)
	wg.Wait()
	list := r.Snapshot()
	if len(list) != 2 || list[0].Name != "claim" || list[1].Name != "publish" {
		t.Fatalf("%+v", list)
	}
	var total time.Duration
	for _, d := range took {
		total += d
	}
	if p := list[1]; p.Count != int64(len(took)) || p.Total != total || p.Buckets[0] != 2 || p.Buckets[2] != 2 || p.Buckets[len(p.Buckets)-1] != 1 {
		t.Errorf("%+v", p)
	}
}

func TestFaultsAreCountedOutcomesAreNot(t *testing.T) {
	var r Recorder
	for _, err := range []error{
		nil, errors.New("connection refused"), context.DeadlineExceeded, fmt.Errorf("settle: %w", &redrive.Error{Op: "settle", Err: redrive.ErrUnknown}),
		redrive.ErrVersion, redrive.ErrClosed, fmt.Errorf("wait: %w", context.Canceled), &RefusedError{redrive.ErrConflict},
	} {
		r.Observe("settle", time.Millisecond, err)
	}
	if list := r.Snapshot(); list[0].Errors != 3 || list[0].Count != 8 {
		t.Errorf("%+v", list)
	}
}
