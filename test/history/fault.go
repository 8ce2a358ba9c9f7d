package history

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// Kind is what is done to a daemon, a server or a connection.
type Kind string

// The faults.
const (
	KillDaemon Kind = "kill-daemon"
	StopDaemon Kind = "stop-daemon" // SIGSTOP, later SIGCONT
	KillServer Kind = "kill-server"
	StopServer Kind = "stop-server"
	CutLink    Kind = "cut"   // connections are closed
	DelayLink  Kind = "delay" // each write to the server takes a while
	DeafLink   Kind = "half"  // half-open: requests arrive, answers do not
	PowerLoss  Kind = "power" // the daemon ends, and the disk forgets what was not synced
	FullDisk   Kind = "full"  // no file can grow
	MoveClock  Kind = "clock" // the clock of a store's server jumps ahead or back, and later returns
	SlowDisk   Kind = "slow"  // each sync takes a while
)

// Fault is one of them, at a time of a run and for a while.
type Fault struct {
	Kind    Kind
	On      int // which daemon, link or server
	At, For time.Duration
}

// String tells the whole.
func (f Fault) String() string {
	return fmt.Sprintf("%s(%d) at %.2fs for %.2fs", f.Kind, f.On, f.At.Seconds(), f.For.Seconds())
}

// Rig is what there is to break.
type Rig struct {
	Daemons, Links int
	Servers        int
	Restart        time.Duration // of the slowest server
	Clocks         int           // of servers, that can be moved
	Disks          int           // which the daemons' own are on
}

// lane is a row of faults of which one ends before the next begins. Lanes run beside one
// another, so that a daemon dies while its server is frozen.
type lane struct {
	kinds []Kind
	on    int // how many there are to choose from
	every time.Duration
}

func (r Rig) lanes() []lane {
	ends := []Kind{KillDaemon, KillDaemon, StopDaemon}
	if r.Disks > 0 {
		ends = []Kind{KillDaemon, PowerLoss, PowerLoss, StopDaemon}
	}
	list := []lane{
		{ends, r.Daemons, 1200 * time.Millisecond},
		{[]Kind{FullDisk, SlowDisk}, r.Disks, 2 * time.Second},
		{[]Kind{CutLink, DelayLink, DeafLink}, r.Links, 2500 * time.Millisecond},
	}
	return append(list,
		lane{[]Kind{KillServer, KillServer, StopServer}, r.Servers, 3*time.Second + r.Restart},
		lane{[]Kind{MoveClock}, r.Clocks, 5 * time.Second})
}

// longest is how long a fault may last.
const longest = 1500 * time.Millisecond

// Faults draws the faults of a run.
func Faults(random *rand.Rand, r Rig, length time.Duration) (all []Fault) {
	for _, l := range r.lanes() {
		for at := time.Duration(0); l.on > 0; {
			at += l.every/2 + time.Duration(random.Int64N(int64(l.every)))
			if at >= length {
				break
			}
			f := Fault{Kind: l.kinds[random.IntN(len(l.kinds))], On: random.IntN(l.on), At: at, For: time.Duration(random.Int64N(int64(longest)))}
			if random.IntN(2) == 0 { // it is over before anybody looks
				f.For /= 20
			}
			all = append(all, f)
			at += f.For
		}
	}
	return all
}

// Shrink returns few of the items with which a run still fails: none, or what is left by leaving
// out ever smaller parts of them. fails is asked until it is false for every single one left out,
// or until more reports that there is no more time.
func Shrink[T any](items []T, fails func([]T) bool, more func() bool) []T {
	if len(items) > 0 && more() && fails(items[:0]) {
		return items[:0]
	}
	for parts := 2; len(items) > 0 && more(); {
		size := (len(items) + parts - 1) / parts
		smaller := false
		for from := 0; from < len(items) && more(); from += size {
			rest := append(append([]T(nil), items[:from]...), items[min(len(items), from+size):]...)
			if fails(rest) {
				items, smaller = rest, true
				parts = max(2, parts-1)
				break
			}
		}
		if !smaller {
			if size == 1 {
				break
			}
			parts = min(len(items), parts*2)
		}
	}
	return items
}
