package main

import (
	"fmt"
	"time"
)

// progress is one line on the error output that is overwritten. Where there is no terminal it is a
// line now and then, for logs.
type progress struct {
	t     *terminal
	last  time.Time
	shown bool
}

// How often the line is redrawn, at most, and how often there is one where there is no terminal.
const (
	progressEvery = 100 * time.Millisecond
	progressLine  = 10 * time.Second
)

// update shows a text that must be clean, cut to the width that the terminal has now.
func (p *progress) update(format string, args ...any) {
	if p.t.json {
		return
	}
	now := time.Now()
	if !p.t.errTTY {
		if p.last.IsZero() { // what is quick needs no line
			p.last = now
		}
		if now.Sub(p.last) >= progressLine {
			p.last = now
			fmt.Fprintf(p.t.err, format+"\n", args...)
		}
		return
	}
	if now.Sub(p.last) < progressEvery {
		return
	}
	p.last, p.shown = now, true
	// A line that fills the last column may be wrapped, and what is wrapped cannot be overwritten.
	fmt.Fprint(p.t.err, "\r\x1b[K"+shorten(fmt.Sprintf(format, args...), p.t.errWidth()-1))
}

// clear removes the line.
func (p *progress) clear() {
	if p.shown {
		fmt.Fprint(p.t.err, "\r\x1b[K")
		p.shown = false
	}
}
