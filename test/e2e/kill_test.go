package e2e

import (
	"testing"
	"time"
)

// TestKillNine kills the daemon again and again while messages are published,
// delivered and retried. One time in four it is not even ready.
func TestKillNine(t *testing.T) {
	t.Parallel()
	random := seeded(t)
	target := newReceiver(t, "--fail", "20%")
	d := newDaemon(t, proofConfig(target))
	h := newHistory(t, d)
	stop := h.publish(4, random)
	t.Cleanup(stop)
	n := rounds(t, 60)
	for i := range n {
		life := time.Duration(50+random.IntN(550)) * time.Millisecond
		if i > 0 {
			d.launch()
			if random.IntN(4) > 0 {
				until(t, "the daemon is ready", 30*time.Second, d.ready)
			}
		}
		select {
		case <-time.After(life):
		case <-d.done:
			t.Fatalf("round %d: the daemon ended by itself: %v\n%s", i, d.err, tail(d.log.String(), 40))
		}
		d.kill()
		h.note("kill -9")
	}
	d.start()
	stop()
	heal(t, target)
	h.check(d, target, false)
	t.Logf("%d times kill -9", n)
}
