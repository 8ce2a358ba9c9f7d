package sqlstore

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

var bounds = driver.StatementBounds()

// Recorder counts durations and errors by the names of statements. The zero value is ready; it is
// safe for concurrent use.
type Recorder struct {
	byName sync.Map // name -> *durations
}

type durations struct {
	total   atomic.Int64
	errors  atomic.Int64
	buckets []atomic.Int64
}

// Observe counts one statement, which ended with err.
func (r *Recorder) Observe(name string, took time.Duration, err error) {
	v, ok := r.byName.Load(name)
	if !ok {
		v, _ = r.byName.LoadOrStore(name, &durations{buckets: make([]atomic.Int64, len(bounds)+1)})
	}
	d := v.(*durations)
	d.total.Add(int64(took))
	if failed(err) {
		d.errors.Add(1)
	}
	place, _ := slices.BinarySearch(bounds, took)
	d.buckets[place].Add(1)
}

// Snapshot returns what was counted so far.
func (r *Recorder) Snapshot() []driver.StatementStats {
	var list []driver.StatementStats
	for name, v := range r.byName.Range {
		d := v.(*durations)
		s := driver.StatementStats{Name: name.(string), Total: time.Duration(d.total.Load()), Errors: d.errors.Load(), Buckets: make([]int64, len(d.buckets))}
		for i := range d.buckets {
			s.Buckets[i] = d.buckets[i].Load()
			s.Count += s.Buckets[i] // so that they always agree
		}
		list = append(list, s)
	}
	slices.SortFunc(list, func(a, b driver.StatementStats) int { return strings.Compare(a.Name, b.Name) })
	return list
}

// failed reports an error of the server or of the way to it, not one that says what
// became of messages, or that the caller went away.
func failed(err error) bool {
	if err == nil {
		return false
	}
	var refused *RefusedError
	if errors.As(err, &refused) {
		return false
	}
	for _, known := range []error{redrive.ErrVersion, redrive.ErrClosed, context.Canceled} {
		if errors.Is(err, known) {
			return false
		}
	}
	return true
}

// RefusedError says that an item cannot be carried out, so that all that was done for it
// must be undone.
type RefusedError struct{ Err error }

func (e *RefusedError) Error() string { return e.Err.Error() }

// ErrorName is empty: its cause is what failed.
func (*RefusedError) ErrorName() string { return "" }

// Unwrap returns why.
func (e *RefusedError) Unwrap() error { return e.Err }
