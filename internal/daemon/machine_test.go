package daemon_test

import (
	"context"
	"net/http"
	"runtime"
	"testing"
	"time"

	"github.com/redrive/redrive/backend/memory"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/daemon"
	"github.com/redrive/redrive/internal/wire"
)

// ahead is a store on a server whose clock runs ahead.
type ahead struct {
	driver.Store
	by time.Duration
}

func (s ahead) Now(ctx context.Context) (time.Time, error) {
	now, err := s.Store.Now(ctx)
	return now.Add(s.by), err
}

// TestTheMachineIsLookedAt by a daemon that is asked what is wrong.
func TestTheMachineIsLookedAt(t *testing.T) {
	probe := func(d *rig) map[string]wire.Finding {
		all := make(map[string]wire.Finding)
		for _, f := range get[wire.List[wire.Finding]](d, 200, http.MethodGet, "/v1/probe", "").Items {
			all[f.Setting] = f
		}
		return all
	}
	said := probe(start(t, parse(t, "store: sqlite:"+t.TempDir()+"/data"), nil))
	if said["store clock"].Level != "ok" {
		t.Errorf("%+v", said["store clock"])
	}
	for _, setting := range []string{"open files", "disk", "inodes"} {
		if _, ok := said[setting]; !ok && runtime.GOOS == "linux" && setting != "inodes" { // some file systems have no bound of them
			t.Errorf("nothing is said of %s", setting)
		}
	}
	for _, by := range []time.Duration{-time.Hour, time.Hour} {
		store := memory.New()
		if f := probe(start(t, parse(t, ""), ahead{store, by}))["store clock"]; f.Level != "warn" || f.Hint == "" {
			t.Errorf("a clock %s ahead: %+v", by, f)
		}
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestTheMachineIsWarnedOf(t *testing.T) {
	for _, c := range []struct {
		f    wire.Finding
		warn bool
	}{
		{daemon.FilesFinding(1024), true},
		{daemon.FilesFinding(1 << 20), false},
		{daemon.RoomFinding(1<<20, 1<<40), true},
		{daemon.RoomFinding(1<<39, 1<<40), false},
		{daemon.InodesFinding(99, 10_000), true},
		{daemon.InodesFinding(100, 10_000), false},
		{daemon.ClockFinding(7*time.Second, time.Second), true},
		{daemon.ClockFinding(7*time.Second, 3*time.Second), false}, // the answer may have taken that long to leave
		{daemon.ClockFinding(-6*time.Second, 3*time.Second), true},
	} {
		if (c.f.Level == "warn") != c.warn || (c.f.Hint != "") != c.warn {
			t.Errorf("%+v", c.f)
		}
	}
}
