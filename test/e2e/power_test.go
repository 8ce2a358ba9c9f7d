package e2e

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/redrive/redrive/test/e2e/powerloss"
)

// newDisk mounts a disk that forgets what was not synced. A laptop may not be able
// to; CI must.
func newDisk(t *testing.T, seed uint64) (disk *powerloss.Disk, dir string) {
	t.Helper()
	unable := t.Skipf
	if os.Getenv("CI") == "true" {
		unable = t.Fatalf
	}
	f, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		unable("power loss is not tested here: %v", err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	dir = t.TempDir()
	disk, err = powerloss.New(dir, seed)
	if err != nil {
		unable("power loss is not tested here: %v", err)
	}
	return disk, dir
}

// TestPowerLoss cuts the power again and again while messages are published,
// delivered and retried.
func TestPowerLoss(t *testing.T) {
	t.Parallel()
	random := seeded(t)
	disk, dir := newDisk(t, random.Uint64())
	t.Cleanup(func() { // after the daemon is gone
		if err := disk.Close(); err != nil {
			t.Error(err)
		}
	})
	target := newReceiver(t, "--fail", "20%")
	d := newDaemonIn(t, filepath.Join(dir, "data"), proofConfig(target))
	h := newHistory(t, d)
	stop := h.publish(8, random)
	t.Cleanup(stop)
	n := rounds(t, 24)
	for i := range n {
		if i > 0 {
			d.start()
		}
		select {
		case <-time.After(time.Duration(50+random.IntN(550)) * time.Millisecond):
		case <-d.done:
			t.Fatalf("round %d: the daemon ended by itself: %v\n%s", i, d.err, tail(d.log.String(), 40))
		}
		disk.Off()
		d.kill()
		mode := powerloss.DropAll
		if i%2 == 1 {
			mode = powerloss.DropHalf
		}
		if err := disk.On(mode); err != nil {
			t.Fatalf("round %d: %v", i, err)
		}
		h.note("the power was cut")
	}
	d.start()
	stop()
	heal(t, target)
	h.check(d, target, true)
	t.Logf("%d power cuts, %d syncs", n, disk.Syncs())
	if disk.Syncs() == 0 {
		t.Error("nothing was synced, so nothing was proved")
	}
}
