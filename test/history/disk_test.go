package history

import (
	"context"
	"time"

	"github.com/redrive/redrive/test/e2e/powerloss"
)

// onDisk is the embedded store on a disk that loses its power, is full and slow.
const onDisk = "sqlite-disk"

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
