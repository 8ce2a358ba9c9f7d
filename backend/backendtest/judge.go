package backendtest

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"
)

// Judge runs the cases like Run, but a case that fails does not fail the test: it is
// named in the result. It proves that the cases find the faults of backends that are
// broken on purpose. Factory.Around is not used, so cases with an engine only run
// where the store's clock is real.
func Judge(t *testing.T, f Factory) (failed []string, m *Matrix) {
	m = &Matrix{}
	f.Around = nil
	for _, tc := range cases() {
		r := &recorder{TB: t, name: tc.name}
		r.run(func() { m.run(r, tc, newC(r, &f)) })
		if r.Failed() {
			failed = append(failed, tc.name)
			t.Logf("%s: %s", tc.name, r.first())
		}
	}
	return failed, m
}

// judgePatience bounds one case of a broken backend.
const judgePatience = 30 * time.Second

// recorder is a testing.TB that keeps failures to itself.
type recorder struct {
	testing.TB
	name string

	mu       sync.Mutex
	failures []string
	skipped  bool
	cleanups []func()
}

// run calls f as a test is called, in a goroutine that Fatalf can end, and then the
// cleanups.
func (r *recorder) run(f func()) {
	for _, step := range []func(){f, r.clean} {
		done := make(chan struct{})
		go func() {
			defer close(done)
			defer func() {
				if p := recover(); p != nil {
					r.fail(fmt.Sprintf("panic: %v", p))
				}
			}()
			step()
		}()
		timeout := time.NewTimer(judgePatience)
		select {
		case <-done:
		case <-timeout.C:
			r.fail("it does not come to an end")
		}
		timeout.Stop()
	}
}

func (r *recorder) clean() {
	r.mu.Lock()
	all := r.cleanups
	r.cleanups = nil
	r.mu.Unlock()
	for _, f := range slices.Backward(all) {
		f()
	}
}

func (r *recorder) fail(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failures = append(r.failures, text)
}

func (r *recorder) first() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failures[0]
}

// What follows replaces the methods of testing.TB that have an effect on the test.

func (r *recorder) Name() string                      { return r.name }
func (r *recorder) Helper()                           {}
func (r *recorder) Log(...any)                        {}
func (r *recorder) Logf(string, ...any)               {}
func (r *recorder) Fail()                             { r.fail("failed") }
func (r *recorder) Error(args ...any)                 { r.fail(fmt.Sprint(args...)) }
func (r *recorder) Errorf(format string, args ...any) { r.fail(fmt.Sprintf(format, args...)) }

func (r *recorder) FailNow() {
	r.fail("failed")
	runtime.Goexit()
}

func (r *recorder) Fatal(args ...any) {
	r.fail(fmt.Sprint(args...))
	runtime.Goexit()
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.fail(fmt.Sprintf(format, args...))
	runtime.Goexit()
}

func (r *recorder) SkipNow() {
	r.mu.Lock()
	r.skipped = true
	r.mu.Unlock()
	runtime.Goexit()
}
func (r *recorder) Skip(...any)          { r.SkipNow() }
func (r *recorder) Skipf(string, ...any) { r.SkipNow() }

func (r *recorder) Skipped() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.skipped
}

func (r *recorder) Failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.failures) > 0
}

func (r *recorder) Cleanup(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cleanups = append(r.cleanups, f)
}
