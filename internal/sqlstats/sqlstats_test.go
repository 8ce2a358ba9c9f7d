package sqlstats

import (
	"sync"
	"testing"
	"time"

	"github.com/redrive/redrive"
)

func TestEveryDurationFallsIntoOneBucket(t *testing.T) {
	var r Recorder
	var wg sync.WaitGroup
	took := append(redrive.StatementBounds(), 0, time.Hour, time.Millisecond+1)
	for _, d := range took {
		wg.Go(func() { r.Observe("publish", d) })
	}
	r.Observe("claim", time.Second)
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
