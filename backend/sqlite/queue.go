package sqlite

import (
	"math"
	"strings"
	"sync/atomic"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// counter is one number of a queue's row.
type counter int

// The counters, in the order of their columns. The first three are the lanes.
const (
	countFresh counter = iota
	countRetry
	countRedrive
	countBlocked
	countSuspects
	countBytes
	countSeries // causes that have buckets
	countTexts  // distinct texts
	countPublished
	countParked
	countImported
	countMovedIn
	countRepeated
	countDone
	countDropped
	countArchived
	countMovedOut
	countDead // and one for each further reason
	counters  = countDead + counter(driver.LastReason)
)

var counterNames = strings.Fields(`fresh retry redrive blocked suspects bytes series texts
	published parked imported moved_in repeated done dropped archived moved_out
	exhausted permanent crashed expired undecodable oversize unroutable rejected loop uncertain disabled manual corrupt`)

func deadCounter(r redrive.Reason) counter { return countDead + counter(r) - 1 }

type counts [counters]int64

func (c *counts) waiting() int64 { return c[countFresh] + c[countRetry] + c[countRedrive] }

func (c *counts) dead() (n int64) {
	for _, d := range c[countDead:] {
		n += d
	}
	return n
}

func (c *counts) ledger() driver.Ledger {
	return driver.Ledger{
		Published: c[countPublished], Parked: c[countParked], Imported: c[countImported],
		MovedIn: c[countMovedIn], Repeated: c[countRepeated],
		Done: c[countDone], Dropped: c[countDropped], Archived: c[countArchived], MovedOut: c[countMovedOut],
	}
}

// Classes of waiting rows. The first three are the lanes.
const (
	classSuspect = int64(driver.Lanes)
	classBlocked = classSuspect + 1
	claimable    = int(classSuspect) + 1 // number of classes that claims read
)

// Bounds of the next due time of a class.
const (
	dueUnknown int64 = 0             // perhaps now
	dueNever   int64 = math.MaxInt64 // nothing waits
)

// place is a place in the claim order of a class.
type place struct{ due, seq int64 }

func (p place) before(o place) bool { return p.due < o.due || p.due == o.due && p.seq < o.seq }

// queue is what the store keeps in memory of a queue.
type queue struct {
	id   int64
	name string

	// Of the writer only.
	settings driver.QueueSettings
	state    queueState
	changed  bool // state differs from shared
	counted  bool // counts differ from the row
	bumped   bool // something became claimable
	// cursors: every row of the class up to the cursor is leased, or is none of
	// those that the filter lets pass.
	cursors [driver.Lanes]map[string]place

	// leaseEnd: no lease runs out before; see Store.nextLapse.
	leaseEnd atomic.Int64

	// Guarded by Store.mu.
	number  int64 // id, once it is in the file
	shared  queueState
	version uint64
	watched bool
	stamp   uint64 // raised whenever shared, a row or a lease may have changed
	due     due    // as of its stamp
}

// queueState is what others than the writer look at; they see it as of the last
// commit.
type queueState struct {
	counts counts
	leased int64
	next   [claimable]int64 // nothing of the class is due before
	ahead  [claimable]bool  // the clock went back behind rows of the class; see catchUp

	deadAhead bool // and behind dead letters; see catchUpDead
}

// cursorsKept bounds the filters for which a class keeps cursors.
const cursorsKept = 32

func (q *queue) cursor(class int64, filter string) place { return q.cursors[class][filter] }

func (q *queue) setCursor(class int64, filter string, p place) {
	if len(q.cursors[class]) >= cursorsKept {
		clear(q.cursors[class])
	}
	if q.cursors[class] == nil {
		q.cursors[class] = make(map[string]place)
	}
	q.cursors[class][filter] = p
}

// appeared notes that a row became claimable at a place.
func (q *queue) appeared(class int64, p place) {
	if class >= int64(claimable) {
		return
	}
	q.state.next[class] = min(q.state.next[class], p.due)
	if class == classSuspect {
		return
	}
	for filter, at := range q.cursors[class] {
		if !at.before(p) {
			q.cursors[class][filter] = place{p.due, p.seq - 1}
		}
	}
}

// forgetPlaces drops what a transaction that was rolled back may have noted.
func (q *queue) forgetPlaces() {
	for class := range q.cursors {
		clear(q.cursors[class])
	}
	q.state.next = [claimable]int64{}
}
