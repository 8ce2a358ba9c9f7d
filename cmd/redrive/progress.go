package main

import (
	"fmt"
	"time"
)

// progress is one line on the error output that is overwritten, on terminals only.
type progress struct {
	t     *terminal
	last  time.Time
	shown bool
}

// progressEvery bounds how often the line is redrawn.
const progressEvery = 100 * time.Millisecond

// update shows a text that must be clean. Where there is no terminal it does nothing.
func (p *progress) update(format string, args ...any) {
	if !p.t.errTTY || p.t.json || time.Since(p.last) < progressEvery {
		return
	}
	p.last, p.shown = time.Now(), true
	fmt.Fprintf(p.t.err, "\r\x1b[K"+format, args...)
}

// clear removes the line.
func (p *progress) clear() {
	if p.shown {
		fmt.Fprint(p.t.err, "\r\x1b[K")
		p.shown = false
	}
}
