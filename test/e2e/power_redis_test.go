package e2e

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/backend/redislist"
	"github.com/redrive/redrive/backend/redisstream"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/redistest"
	"github.com/redrive/redrive/test/e2e/powerloss"
)

// TestPowerLossOfRedis cuts the power of a Redis server, and kills it, while messages are
// published to a stream and to a list and are settled. Synced always, nothing that was
// acknowledged is lost; synced every second, nothing that was acknowledged before the last
// few syncs, and the test tells how old the oldest loss was. It counts by syncs because a
// busy machine makes late ones.
func TestPowerLossOfRedis(t *testing.T) {
	for _, tc := range []struct {
		fsync string
		power bool // the power is cut; else the server is killed, and what it wrote is there
	}{{"always", true}, {"everysec", true}, {"everysec", false}} {
		t.Run(fmt.Sprintf("%s power=%v", tc.fsync, tc.power), func(t *testing.T) {
			t.Parallel()
			random := seeded(t)
			for range rounds(t, 1) {
				powerLossOfRedis(t, tc.fsync, tc.power, time.Duration(random.Int64N(int64(time.Second))))
			}
		})
	}
}

// settledFor is how many syncs make sure that something is synced: one may have been under
// way, and what came meanwhile was then not yet written to the file.
const settledFor = 3

func powerLossOfRedis(t *testing.T, fsync string, power bool, later time.Duration) {
	disk, dir := powerloss.Mount(t, 1)
	defer func() { // a long run has many
		if err := disk.Close(); err != nil {
			t.Error(err)
		}
	}()
	server, err := redistest.New(redistest.Binary(t, "redis-server"), dir, redistest.Options{AppendOnly: true, Fsync: fsync})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Kill()
	syncDirs(t, dir)
	h := &redisHistory{disk: disk, published: map[string]acked{}, ended: map[string]acked{}}
	stop := h.traffic(t, server.URL())
	began := disk.Syncs()
	until(t, "it is synced a few times", time.Minute, func() bool { return disk.Syncs() > began+settledFor && h.size() > 100 })
	<-time.After(later) // anywhere between two syncs
	if power {
		disk.Off()
	}
	cut := acked{time.Now(), disk.Syncs()}
	server.Kill()
	stop()
	if power {
		if err := disk.On(powerloss.DropAll); err != nil {
			t.Fatal(err)
		}
	}
	if err := server.Resume(); err != nil {
		t.Fatal(err)
	}
	h.check(t, server.URL(), cut, fsync == "always")
}

// syncDirs makes the names of files durable, which the server leaves to time.
func syncDirs(t *testing.T, dir string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		f, err := os.Open(path)
		if err == nil {
			err = f.Sync()
			_ = f.Close()
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// acked is when something was acknowledged, and how often was synced before.
type acked struct {
	at    time.Time
	syncs int64
}

// redisHistory is what a server acknowledged, by queue and id.
type redisHistory struct {
	disk      *powerloss.Disk
	mu        sync.Mutex
	published map[string]acked
	ended     map[string]acked
	ending    map[string]bool
}

func (h *redisHistory) note(m map[string]acked, key string) {
	now := acked{time.Now(), h.disk.Syncs()}
	h.mu.Lock()
	defer h.mu.Unlock()
	m[key] = now
}

func (h *redisHistory) size() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return min(len(h.published), 10*len(h.ended))
}

// sourceSink is what a stream and a list have in common.
type sourceSink interface {
	driver.Source
	redrive.Sink
}

// sources opens a store on streams and a source on lists.
func sources(t *testing.T, url string) map[string]sourceSink {
	t.Helper()
	stream, err := redisstream.Open(context.Background(), url)
	if err != nil {
		t.Fatal(err)
	}
	list, err := redislist.Open(context.Background(), url, redislist.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = list.Close(); _ = stream.Close() })
	return map[string]sourceSink{"stream": stream, "list": list}
}

// powerLease outlives a round, so that nothing comes again that was not lost.
const powerLease = 10 * time.Minute

// traffic publishes and settles, slowly enough for what is checked afterwards.
func (h *redisHistory) traffic(t *testing.T, url string) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	h.ending = map[string]bool{}
	var wg sync.WaitGroup
	for kind, s := range sources(t, url) {
		wg.Go(func() {
			pace := time.NewTicker(2 * time.Millisecond)
			defer pace.Stop()
			for ctx.Err() == nil {
				<-pace.C
				msgs := make([]redrive.Message, 5)
				for i := range msgs {
					msgs[i].Queue = "sms"
				}
				errs := s.Publish(ctx, msgs)
				for i := range msgs {
					if errs == nil || errs[i] == nil {
						h.note(h.published, kind+msgs[i].ID)
					}
				}
				ds, err := s.Claim(ctx, driver.ClaimRequest{Queue: "sms", Max: 2, Lease: powerLease, Instance: "one"})
				if err != nil || len(ds) == 0 {
					continue
				}
				d := &ds[0] // the other stays in flight
				h.mu.Lock()
				h.ending[kind+d.ID] = true
				h.mu.Unlock()
				if driver.FirstError(s.Settle(ctx, []driver.Settlement{{Receipt: d.Receipt, Outcome: redrive.OutcomeDone}})) == nil {
					h.note(h.ended, kind+d.ID)
				}
			}
		})
	}
	return func() { cancel(); wg.Wait() }
}

// left returns what is there: waiting or in flight.
func (h *redisHistory) left(t *testing.T, url string) map[string]bool {
	t.Helper()
	left := map[string]bool{}
	for kind, s := range sources(t, url) {
		for {
			ds, err := s.Claim(t.Context(), driver.ClaimRequest{Queue: "sms", Max: 500, Lease: powerLease, Instance: "two"})
			if err != nil {
				t.Fatal(err)
			}
			if len(ds) == 0 {
				break
			}
			for i := range ds {
				left[kind+ds[i].ID] = true
			}
		}
		switch s := s.(type) {
		case *redisstream.Store:
			for q := (redrive.Query{Queue: "sms", Limit: redrive.MaxPage}); ; {
				page, err := s.Find(t.Context(), q)
				if err != nil {
					t.Fatal(err)
				}
				for i := range page.Entries {
					left[kind+page.Entries[i].ID] = true
				}
				if q.After = page.Next; q.After == "" {
					break
				}
			}
		case *redislist.Source:
			entries, err := s.Processing(t.Context(), "sms", 1_000_000)
			if err != nil {
				t.Fatal(err)
			}
			for i := range entries {
				left[kind+entries[i].ID] = true
			}
		}
	}
	return left
}

// check accounts for what was acknowledged before the cut.
func (h *redisHistory) check(t *testing.T, url string, cut acked, always bool) {
	t.Helper()
	left := h.left(t, url)
	var oldest time.Duration
	lost := map[string]int{}
	judge := func(what, key string, a acked) {
		if a.at.After(cut.at) {
			return // by a server without power
		}
		lost[what]++
		oldest = max(oldest, cut.at.Sub(a.at))
		if always || a.syncs <= cut.syncs-settledFor {
			t.Errorf("%s of %s: acknowledged %s and %d syncs before the cut, and lost", what, key, cut.at.Sub(a.at), cut.syncs-a.syncs)
		}
	}
	for key, a := range h.published {
		if !left[key] && !h.ending[key] {
			judge("publish", key, a)
		}
	}
	for key, a := range h.ended {
		if left[key] {
			judge("settlement", key, a)
		}
	}
	t.Logf("%d publishes and %d settlements acknowledged, %d syncs; lost %v, the oldest acknowledged %s before the cut", len(h.published), len(h.ended), cut.syncs, lost, oldest)
}
