package engine

import "time"

// Workers are the goroutines that call handlers. One takes attempt after attempt, so
// that its stack has grown once, and before each it sees to it that another is on its
// way while more attempts are ready: if a handler blocks, the other one goes on. So
// each ready attempt has a goroutine as soon as the scheduler has time for it, and
// short handlers share a few.

// ready puts an attempt in line for a worker.
func (c *consumer) ready(a *attempt) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.tail == nil {
		c.head = a
	} else {
		c.tail.behind = a
	}
	c.tail = a
	c.inLine++
	c.spawnLocked()
}

// spawnLocked starts a worker unless nothing is ready, all slots are taken or one is about to begin.
func (c *consumer) spawnLocked() {
	if c.head != nil && !c.spawning && c.running < c.options().Concurrency {
		c.spawning = true
		go c.work()
	}
}

// work runs attempts until none is ready, or no slot is free. A handler that ends its goroutine
// (runtime.Goexit) ends the worker with it; the next one is then started.
func (c *consumer) work() {
	c.mu.Lock()
	c.spawning = false
	defer func() {
		c.spawnLocked()
		c.mu.Unlock()
	}()
	for c.head != nil && c.running < c.options().Concurrency {
		a := c.head
		c.head, a.behind = a.behind, nil
		if c.head == nil {
			c.tail = nil
		}
		c.inLine--
		run := a.state == attemptRunning && (!a.ahead || a.closings == c.closings) // else a shutdown released it, or a gate closed
		if run {
			c.running++
			a.began = time.Now()
			a.deadline = a.began.Add(a.policy.Timeout)
		}
		c.spawnLocked()
		c.mu.Unlock()
		c.handle(a, run)
		c.mu.Lock()
	}
}

// handle runs one attempt, and takes the lock again if the handler ends the
// goroutine.
func (c *consumer) handle(a *attempt, run bool) {
	if !run {
		c.unbegun(a)
		return
	}
	returned := false
	defer func() {
		if !returned {
			c.mu.Lock() // for the worker's own deferred call
		}
	}()
	a.run()
	returned = true
}
