package redisstream

import (
	"slices"
	"sync"
	"time"

	"github.com/redrive/redrive"
)

// copies keeps what this process has claimed of plain entries, until it is settled: so a
// retry or a dead letter needs no reading back, and keeps its body even if another client
// trimmed the stream meanwhile. It is an aid only: without a copy the entry is read.
type copies struct {
	mu    sync.Mutex
	held  map[string]*heldBatch // by holder, which is that of one claim
	n     int                   // messages of all
	swept time.Time             // when it was full and tidied up last
}

// heldBatch is what one claim delivered for the first time, in order of the entries.
type heldBatch struct {
	msgs  []redrive.Message // one that was taken or is too large has no queue
	sums  []checksum        // what they were stored with
	left  int               // not settled yet
	until time.Time         // of our clock; only to tidy up
}

// Bounds of the copies: how many, and how long beyond their lease.
const (
	maxCopies   = 20_000
	copySlack   = 10 * time.Minute
	copyLargest = 256 << 10 // bytes of a body
)

func (b *heldBatch) add(m *redrive.Message, sum checksum) {
	b.msgs, b.sums = append(b.msgs, *m), append(b.sums, sum)
	if len(m.Body) > copyLargest {
		b.msgs[len(b.msgs)-1] = redrive.Message{ID: m.ID}
	}
}

// add keeps a batch, if there is room.
func (c *copies) add(holder string, b *heldBatch, lease time.Duration) {
	if len(b.msgs) == 0 {
		return
	}
	now := time.Now()
	b.left, b.until = len(b.msgs), now.Add(min(lease, 24*time.Hour)+copySlack)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.held == nil {
		c.held = make(map[string]*heldBatch)
	}
	if c.n+len(b.msgs) > maxCopies {
		c.sweep(now)
		if c.n+len(b.msgs) > maxCopies {
			return
		}
	}
	c.held[holder] = b
	c.n += len(b.msgs)
}

func (c *copies) remove(holder string, b *heldBatch) {
	delete(c.held, holder)
	c.n -= len(b.msgs)
}

// sweep removes copies that nobody will ask for, at most once a second.
func (c *copies) sweep(now time.Time) {
	if now.Sub(c.swept) < time.Second {
		return
	}
	c.swept = now
	for holder, b := range c.held {
		if now.After(b.until) {
			c.remove(holder, b)
		}
	}
}

// take returns the copy of a claimed message, with its checksum, and forgets it. It is not
// ok if the handler, which has the same bytes, changed them.
func (c *copies) take(ref redrive.Ref, holder string) (m redrive.Message, sum checksum, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	b := c.held[holder]
	if b == nil {
		return m, sum, false
	}
	// The ids of entries are in order of the entries but for a number that starts anew.
	i := slices.IndexFunc(b.msgs, func(m redrive.Message) bool { return m.ID == ref.ID })
	if i < 0 || b.msgs[i].Queue != ref.Queue {
		return m, sum, false
	}
	m, sum, b.msgs[i] = b.msgs[i], b.sums[i], redrive.Message{ID: ref.ID}
	c.left(holder, b, 1)
	return m, sum, sum.fits(&m)
}

// drop forgets the copies of n settled claims of a holder.
func (c *copies) drop(holder string, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if b := c.held[holder]; b != nil {
		c.left(holder, b, n)
	}
}

func (c *copies) left(holder string, b *heldBatch, less int) {
	if b.left -= less; b.left <= 0 {
		c.remove(holder, b)
	}
}
