package history

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/redrive/redrive/test/e2e/powerloss"
)

// onDisk is the embedded store on a disk that loses its power, is full and slow.
const onDisk = "sqlite-disk"

// newDisk mounts such a disk. A laptop may not be able to; CI must.
func newDisk(t testing.TB, seed uint64) (disk *powerloss.Disk, dir string) {
	t.Helper()
	unable := t.Skipf
	if os.Getenv("CI") == "true" {
		unable = t.Fatalf
	}
	f, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		unable("no disk can fail here: %v", err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	dir = t.TempDir()
	if disk, err = powerloss.New(dir, seed); err != nil {
		unable("no disk can fail here: %v", err)
	}
	t.Cleanup(func() {
		if err := disk.Close(); err != nil {
			t.Error(err)
		}
	})
	return disk, dir
}

// powerLoss ends the daemon at the instant at which the disk stops to keep anything: most
// likely while a slow sync is under way, before which nothing may be acknowledged.
func (r *rig) powerLoss(ctx context.Context, f Fault) {
	r.disk.Slow(slowness)
	defer r.disk.Slow(0)
	pause(ctx, 100*time.Millisecond)
	r.disk.Off()
	d := r.daemons[f.On]
	d.kill()
	if !await(context.WithoutCancel(ctx), time.Minute, d.gone) {
		r.t.Error("the daemon does not end")
	}
	mode := powerloss.DropAll
	if f.For.Milliseconds()%2 == 1 {
		mode = powerloss.DropHalf
	}
	if err := r.disk.On(mode); err != nil {
		r.t.Error(err)
	}
	pause(ctx, f.For)
	d.resume()
}

// slowness is what a sync takes longer on a slow disk.
const slowness = 25 * time.Millisecond
