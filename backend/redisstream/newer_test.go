package redisstream

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/backend/backendtest"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/redistest"
)

// otherWay has a store use newer commands where its server lacks them, and not where it has
// them: a script then does by itself what the older server needs.
func otherWay(s driver.Store) driver.Store {
	conn := s.(*Store).conn
	for name, has := range conn.Has {
		conn.Has[name] = !has
	}
	return s
}

// TestTheOtherWay runs the scripts that know a newer command in the mode of a server of
// another age.
func TestTheOtherWay(t *testing.T) {
	for _, name := range []string{"done", "step", "claim"} {
		t.Run(name, func(t *testing.T) {
			s := open(t)
			otherWay(s)
			scriptTests[name](t, s)
			balanced(t, s)
		})
	}
}

// TestConformanceTheOtherWay is the whole suite in that mode.
func TestConformanceTheOtherWay(t *testing.T) {
	if rounds(0) == 0 {
		t.Skip("not offered: a minute; REDRIVE_PROOF_ROUNDS=1 runs it")
	}
	f := factory(redistest.Shared(t).URL())
	opened, again, reopened, crashed := f.Open, f.Connect, f.Reopen, f.Crash
	f.Open = func(t testing.TB) driver.Store { return otherWay(opened(t)) }
	f.Connect = func(t testing.TB, s driver.Store) driver.Store { return otherWay(again(t, s)) }
	f.Reopen = func(t testing.TB, s driver.Store) driver.Store { return otherWay(reopened(t, s)) }
	f.Crash = func(t testing.TB, s driver.Store) driver.Store { return otherWay(crashed(t, s)) }
	backendtest.Run(t, f)
}

// TestSettlementsOfAMixedBatch settles in one call what is in flight, what was settled before,
// what is named twice and what another client took from the stream, in both ways.
func TestSettlementsOfAMixedBatch(t *testing.T) {
	for name, way := range map[string]func(driver.Store) driver.Store{
		"as the server is": func(s driver.Store) driver.Store { return s }, "the other way": otherWay,
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t)
			way(s)
			publish(t, s, 20)
			ds := claim(t, s, ask(20))
			settle(t, s, redrive.OutcomeDone, ds[3:9]...)
			errs := settleErrs(s, t, redrive.OutcomeDone, append(ds[:20:20], ds[0])...)
			for i, err := range errs {
				var want error
				switch {
				case i == 20:
					want = redrive.ErrLeaseLost
				case i >= 3 && i < 9:
					want = redrive.ErrNotFound
				}
				if !errors.Is(err, want) {
					t.Errorf("settlement %d: %v, want %v", i, err, want)
				}
			}
			clean(t, s)
			done := balanced(t, s).Ledger.Done
			q := s.queue("sms")
			bytes, err := s.conn.HGet(t.Context(), q.keys[keyCounters], "bytes").Int64()
			if err != nil || bytes != 0 || done != 20 {
				t.Errorf("%d done, %d bytes left (%v)", done, bytes, err)
			}

			// The group is gone, and one entry with it: what is left is known by its lease.
			publish(t, s, 12)
			ds = claim(t, s, ask(12))
			noErr(t, s.conn.XDel(t.Context(), q.keys[keyStream], strings.TrimPrefix(positionOf(&ds[0].Receipt).place, "s")).Err())
			settle(t, s, redrive.OutcomeDone, ds[:2]...)
			noErr(t, s.conn.XGroupDestroy(t.Context(), q.keys[keyStream], GroupName).Err())
			settle(t, s, redrive.OutcomeDone, ds[2:]...)
			clean(t, s)
			if a := balanced(t, s); a.Ledger.Done != 32 {
				t.Errorf("%+v", a.Ledger)
			}
		})
	}
}

// BenchmarkSettleEitherWay settles batches of a hundred with XACKDEL and without it, and
// reports what the server spent on a message and wrote of it to its file.
func BenchmarkSettleEitherWay(b *testing.B) {
	server := redistest.Start(b, redistest.Options{AppendOnly: true, Fsync: "no"})
	for _, newer := range []bool{false, true} {
		name := "xack+xdel"
		if newer {
			name = "xackdel"
		}
		b.Run(name, func(b *testing.B) {
			s := openAt(b, server.URL(), redistest.Prefix())
			if newer && !s.conn.Has["XACKDEL"] {
				b.Skip("the server has no XACKDEL; REDRIVE_REDIS_SERVER=/path/to/redis-server names one of 8.2 or newer")
			}
			s.conn.Has["XACKDEL"] = newer
			file := func() int64 {
				return number(infoField(b, s, "persistence", "aof_current_size"))
			}
			least, wrote := time.Hour, int64(0)
			publish(b, s, 1)
			settle(b, s, redrive.OutcomeDone, claim(b, s, ask(1))...) // the script is known from here on
			for b.Loop() {
				publishBodies(b, s, 100, nil)
				ds, err := s.Claim(b.Context(), ask(100))
				noErr(b, err)
				noErr(b, s.conn.ConfigResetStat(b.Context()).Err())
				before := file()
				settle(b, s, redrive.OutcomeDone, ds...)
				wrote += file() - before
				spent, _, _ := strings.Cut(infoField(b, s, "commandstats", "cmdstat_evalsha"), ",usec_per_call")
				_, spent, _ = strings.Cut(spent, "usec=")
				least = min(least, time.Duration(number(spent))*time.Microsecond)
			}
			b.ReportMetric(float64(least.Nanoseconds())/100, "least-server-ns/message")
			b.ReportMetric(float64(wrote)/float64(b.N)/100, "file-bytes/message")
		})
	}
}

// infoField is a field of a section of INFO.
func infoField(t testing.TB, s *Store, section, name string) string {
	t.Helper()
	for line := range strings.Lines(s.conn.Info(t.Context(), section).Val()) {
		if v, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(v)
		}
	}
	t.Fatalf("INFO %s has no %s", section, name)
	return ""
}
