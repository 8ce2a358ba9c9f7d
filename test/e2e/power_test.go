package e2e

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/redrive/redrive/test/e2e/powerloss"
)

// TestPowerLoss cuts the power again and again while messages are published,
// delivered and retried.
func TestPowerLoss(t *testing.T) {
	t.Parallel()
	random := seeded(t)
	disk, dir := powerloss.Mount(t, random.Uint64())
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
