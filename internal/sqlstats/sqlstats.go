// Package sqlstats counts how long the statements of a store in a database take.
package sqlstats

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redrive/redrive"
)

var bounds = redrive.StatementBounds()

// Recorder counts durations by the names of statements. The zero value is ready; it is
// safe for concurrent use.
type Recorder struct {
	byName sync.Map // name -> *durations
}

type durations struct {
	total   atomic.Int64
	buckets []atomic.Int64
}

// Observe counts one statement.
func (r *Recorder) Observe(name string, took time.Duration) {
	v, ok := r.byName.Load(name)
	if !ok {
		v, _ = r.byName.LoadOrStore(name, &durations{buckets: make([]atomic.Int64, len(bounds)+1)})
	}
	d := v.(*durations)
	d.total.Add(int64(took))
	place, _ := slices.BinarySearch(bounds, took)
	d.buckets[place].Add(1)
}

// Snapshot returns what was counted so far.
func (r *Recorder) Snapshot() []redrive.StatementStats {
	var list []redrive.StatementStats
	for name, v := range r.byName.Range {
		d := v.(*durations)
		s := redrive.StatementStats{Name: name.(string), Total: time.Duration(d.total.Load()), Buckets: make([]int64, len(d.buckets))}
		for i := range d.buckets {
			s.Buckets[i] = d.buckets[i].Load()
			s.Count += s.Buckets[i] // so that they always agree
		}
		list = append(list, s)
	}
	slices.SortFunc(list, func(a, b redrive.StatementStats) int { return strings.Compare(a.Name, b.Name) })
	return list
}
