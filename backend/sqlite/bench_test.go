//go:build linux

package sqlite

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

const benchBody = 256

// cpu reports the CPU time a message, over what run does.
func cpu(b *testing.B, messages int, run func()) {
	b.Helper()
	var before, after syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &before)
	start := time.Now()
	run()
	took := time.Since(start)
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &after)
	used := after.Utime.Nano() + after.Stime.Nano() - before.Utime.Nano() - before.Stime.Nano()
	b.ReportMetric(float64(used)/1000/float64(messages), "cpu-us/msg")
	b.ReportMetric(float64(messages)/took.Seconds(), "msg/s")
}

func benchMessages(n int) []redrive.Message {
	msgs := make([]redrive.Message, n)
	body := make([]byte, benchBody)
	for i := range msgs {
		msgs[i] = redrive.Message{Queue: "bench", Kind: "sms.send", Body: body}
	}
	return msgs
}

// share divides b.N calls of fn among callers.
func share(b *testing.B, callers int, fn func()) {
	b.Helper()
	var wg sync.WaitGroup
	calls := make(chan struct{}, 1024)
	for range callers {
		wg.Go(func() {
			for range calls {
				fn()
			}
		})
	}
	for range b.N {
		calls <- struct{}{}
	}
	close(calls)
	wg.Wait()
}

var benchShapes = []struct {
	name           string
	callers, batch int
}{{"1", 1, 1}, {"16", 16, 1}, {"128", 128, 1}, {"batch100", 1, 100}}

func BenchmarkPublish(b *testing.B) {
	for _, shape := range benchShapes {
		b.Run(shape.name, func(b *testing.B) {
			s := open(b, b.TempDir())
			b.ReportAllocs()
			b.ResetTimer()
			cpu(b, b.N*shape.batch, func() {
				share(b, shape.callers, func() {
					if err := driver.FirstError(s.Publish(context.Background(), benchMessages(shape.batch))); err != nil {
						b.Error(err)
					}
				})
			})
		})
	}
}

// BenchmarkBareLog is what the disk allows: the same bytes appended to a file by a
// writer that syncs once for all who wait.
func BenchmarkBareLog(b *testing.B) {
	for _, shape := range benchShapes {
		b.Run(shape.name, func(b *testing.B) {
			f, err := os.Create(filepath.Join(b.TempDir(), "log"))
			noErr(b, err)
			defer func() { _ = f.Close() }()
			l := &bareLog{f: f, work: make(chan chan error, 4096)}
			go l.run()
			defer close(l.work)
			record := make([]byte, (benchBody+44)*shape.batch)
			b.ResetTimer()
			cpu(b, b.N*shape.batch, func() {
				share(b, shape.callers, func() {
					if err := l.append(record); err != nil {
						b.Error(err)
					}
				})
			})
		})
	}
}

type bareLog struct {
	f    *os.File
	work chan chan error
	mu   sync.Mutex
	buf  []byte
}

func (l *bareLog) append(record []byte) error {
	done := make(chan error, 1)
	l.mu.Lock()
	l.buf = append(l.buf, record...)
	l.mu.Unlock()
	l.work <- done
	return <-done
}

func (l *bareLog) run() {
	var waiting []chan error
	for done := range l.work {
		waiting = append(waiting[:0], done)
		for more := true; more; {
			select {
			case done := <-l.work:
				waiting = append(waiting, done)
			default:
				more = false
			}
		}
		l.mu.Lock()
		buf := l.buf
		l.buf = nil
		l.mu.Unlock()
		_, err := l.f.Write(buf)
		if err == nil {
			err = syscall.Fdatasync(int(l.f.Fd()))
		}
		for _, done := range waiting {
			done <- err
		}
	}
}

// BenchmarkDrain claims and settles in batches of 100.
func BenchmarkDrain(b *testing.B) {
	s := open(b, b.TempDir())
	const batch = 100
	for range (b.N + 9) / 10 {
		noErr(b, s.Publish(context.Background(), benchMessages(10*batch))...)
	}
	b.ReportAllocs()
	b.ResetTimer()
	cpu(b, b.N*batch, func() {
		for range b.N {
			ds, err := s.Claim(context.Background(), driver.ClaimRequest{Queue: "bench", Max: batch, Lease: time.Minute})
			if err != nil || len(ds) != batch {
				b.Fatal(len(ds), err)
			}
			list := make([]driver.Settlement, len(ds))
			for i := range ds {
				list[i] = driver.Settlement{Receipt: ds[i].Receipt, Outcome: redrive.OutcomeDone}
			}
			noErr(b, s.Settle(context.Background(), list)...)
		}
	})
}

// BenchmarkOpenMillion opens a store in which a million messages wait, and claims
// the first of them.
func BenchmarkOpenMillion(b *testing.B) {
	dir := b.TempDir()
	s := open(b, dir)
	for range 1000 {
		noErr(b, s.Publish(context.Background(), benchMessages(1000))...)
	}
	noErr(b, s.Close())
	runtime.GC()
	debug.FreeOSMemory()
	before := resident(b)
	b.ResetTimer()
	for range b.N {
		s, err := Open(dir)
		noErr(b, err)
		ds, err := s.Claim(context.Background(), driver.ClaimRequest{Queue: "bench", Max: 100, Lease: time.Minute})
		if err != nil || len(ds) != 100 {
			b.Fatal(len(ds), err)
		}
		b.StopTimer()
		list := make([]driver.Settlement, len(ds))
		for i := range ds {
			list[i] = driver.Settlement{Receipt: ds[i].Receipt, Outcome: redrive.OutcomeRelease}
		}
		noErr(b, s.Settle(context.Background(), list)...)
		b.ReportMetric(float64(resident(b)-before)/1e6, "more-MB")
		b.ReportMetric(float64(resident(b))/1e6, "resident-MB")
		noErr(b, s.Close())
		b.StartTimer()
	}
}

// resident is the memory of the process in bytes.
func resident(b *testing.B) int64 {
	b.Helper()
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		b.Skip("needs /proc")
	}
	fields := strings.Fields(string(text))
	pages, err := strconv.ParseInt(fields[1], 10, 64)
	noErr(b, err)
	return pages * int64(os.Getpagesize())
}

// BenchmarkFlood handles messages while 16 callers publish as fast as they are
// answered: handled/published says whether the flood starves the deliveries.
func BenchmarkFlood(b *testing.B) {
	s := open(b, b.TempDir())
	ctx, stop := context.WithCancel(context.Background())
	var published atomic.Int64
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for ctx.Err() == nil {
				if s.Publish(context.Background(), benchMessages(1)) == nil {
					published.Add(1)
				}
			}
		})
	}
	handled := 0
	b.ResetTimer()
	for handled < b.N { // a message, as a claim may find none
		ds, err := s.Claim(context.Background(), driver.ClaimRequest{Queue: "bench", Max: 100, Lease: time.Minute})
		noErr(b, err)
		list := make([]driver.Settlement, len(ds))
		for i := range ds {
			list[i] = driver.Settlement{Receipt: ds[i].Receipt, Outcome: redrive.OutcomeDone}
		}
		noErr(b, s.Settle(context.Background(), list)...)
		handled += len(ds)
	}
	b.ReportMetric(float64(handled)/float64(max(published.Load(), 1)), "handled/published")
	stop()
	wg.Wait()
}

// BenchmarkDeaths claims and settles in batches of 100, each of which dies of one of ten causes.
func BenchmarkDeaths(b *testing.B) {
	s := open(b, b.TempDir())
	const batch = 100
	for range (b.N + 9) / 10 {
		noErr(b, s.Publish(context.Background(), benchMessages(10*batch))...)
	}
	failures := make([]*redrive.Failure, 10)
	for i := range failures {
		failures[i] = &redrive.Failure{Message: "no", Types: []string{"x"}, Signature: "1-" + strconv.Itoa(i)}
	}
	b.ReportAllocs()
	b.ResetTimer()
	cpu(b, b.N*batch, func() {
		for range b.N {
			ds, err := s.Claim(context.Background(), driver.ClaimRequest{Queue: "bench", Max: batch, Lease: time.Minute})
			if err != nil || len(ds) != batch {
				b.Fatal(len(ds), err)
			}
			list := make([]driver.Settlement, len(ds))
			for i := range ds {
				list[i] = driver.Settlement{Receipt: ds[i].Receipt, Outcome: redrive.OutcomeDead, Reason: redrive.ReasonPermanent, Failure: failures[i%len(failures)]}
			}
			noErr(b, s.Settle(context.Background(), list)...)
		}
	})
}
