package redisstream

import (
	"sync"
	"time"

	"github.com/redrive/redrive"
)

// copies keeps what this process has claimed of plain entries, until it is settled: so a
// retry or a dead letter needs no reading back, and keeps its body even if another client
// trimmed the stream meanwhile. It is an aid only: without a copy the entry is read.
type copies struct {
	mu    sync.Mutex
	held  map[string]heldCopy // by queue and place
	swept time.Time           // when it was full and tidied up last
}

type heldCopy struct {
	holder string
	msg    redrive.Message
	until  time.Time // of our clock; only to tidy up
}

// Bounds of the copies: how many, and how long beyond their lease.
const (
	maxCopies   = 20_000
	copySlack   = 10 * time.Minute
	copyLargest = 256 << 10 // bytes of a body
)

func (c *copies) add(it *item, lease time.Duration) {
	if it.place[0] != 's' || it.bad != nil || len(it.msg.Body) > copyLargest {
		return
	}
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.held == nil {
		c.held = make(map[string]heldCopy)
	}
	if len(c.held) >= maxCopies {
		c.sweep(now)
		if len(c.held) >= maxCopies {
			return
		}
	}
	c.held[it.q.name+"/"+it.place] = heldCopy{it.holder, it.msg, now.Add(min(lease, 24*time.Hour) + copySlack)}
}

// sweep removes copies that nobody will ask for, at most once a second.
func (c *copies) sweep(now time.Time) {
	if now.Sub(c.swept) < time.Second {
		return
	}
	c.swept = now
	for k, v := range c.held {
		if now.After(v.until) {
			delete(c.held, k)
		}
	}
}

// take returns the copy of a claim and forgets it.
func (c *copies) take(queue, place, holder string) (redrive.Message, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	v, ok := c.held[queue+"/"+place]
	if !ok || v.holder != holder {
		return redrive.Message{}, false
	}
	delete(c.held, queue+"/"+place)
	return v.msg, true
}

// drop forgets the copies of settled claims.
func (c *copies) drop(list []redrive.Settlement) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.held) == 0 {
		return
	}
	for i := range list {
		if place, _, ok := position(&list[i].Receipt); ok && place[0] == 's' {
			delete(c.held, list[i].Receipt.Queue+"/"+place)
		}
	}
}
