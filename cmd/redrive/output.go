package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"

	"github.com/redrive/redrive/internal/daemon/config"
	"github.com/redrive/redrive/internal/problem"
)

// standard returns the terminal of the process.
func standard() *terminal {
	t := &terminal{in: os.Stdin, out: os.Stdout, err: os.Stderr}
	t.inTTY = isTerminal(os.Stdin)
	t.outTTY = isTerminal(os.Stdout)
	t.errTTY = isTerminal(os.Stderr)
	t.colour = t.outTTY && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
	if t.outTTY {
		t.width, _, _ = term.GetSize(int(os.Stdout.Fd()))
	}
	t.errSize = func() int {
		width, _, _ := term.GetSize(int(os.Stderr.Fd())) // 0 where it is not known
		return width
	}
	return t
}

func isTerminal(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }

// errWidth is the width that the error output has now.
func (t *terminal) errWidth() int {
	if t.errSize != nil {
		if width := t.errSize(); width > 0 {
			return width
		}
	}
	return cmp.Or(t.width, 80)
}

// Colours, by what they stand for.
const (
	plain  = ""
	faint  = "2"
	strong = "1"
	good   = "32"
	warn   = "33"
	bad    = "31"
)

// sharedWriter is an output that several goroutines write to, until it has ended.
type sharedWriter struct {
	mu *sync.Mutex
	w  *io.Writer // nil once it has ended
}

// Write implements io.Writer. What comes after the end is dropped.
func (s sharedWriter) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if *s.w == nil {
		return len(p), nil
	}
	return (*s.w).Write(p)
}

// shared returns the terminal for a command whose goroutines write to it, also after the
// command: end is called when nothing may be written any more.
func (t *terminal) shared() (own *terminal, end func()) {
	c := *t
	out, errs, mu := t.out, t.err, new(sync.Mutex)
	c.out, c.err = sharedWriter{mu, &out}, sharedWriter{mu, &errs}
	return &c, func() {
		mu.Lock()
		defer mu.Unlock()
		out, errs = nil, nil
	}
}

// paint colours text if the terminal may be coloured. The text must be clean.
func (t *terminal) paint(colour, s string) string {
	if !t.colour || colour == plain || s == "" {
		return s
	}
	return "\x1b[" + colour + "m" + s + "\x1b[0m"
}

// printf writes to the output; arguments that are strings from outside must be clean.
func (t *terminal) printf(format string, args ...any) { fmt.Fprintf(t.out, format, args...) }

// note writes a remark to the error output, so that it stays out of pipes.
func (t *terminal) note(format string, args ...any) {
	if !t.json {
		fmt.Fprintf(t.err, format+"\n", args...)
	}
}

// writeJSON writes a value as indented JSON.
func (t *terminal) writeJSON(v any) error {
	e := json.NewEncoder(t.out)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// printError prints an error with its hint.
func (t *terminal) printError(err error) {
	var p *problem.Problem
	if errors.As(err, &p) {
		if t.json {
			fmt.Fprintf(t.err, "%s\n", p.AppendJSON(nil))
			return
		}
		text := p.Title
		if p.Detail != "" {
			text += ": " + p.Detail
		}
		fmt.Fprintf(t.err, "redrive: %s\n", clean(text))
		if p.Hint != "" {
			fmt.Fprintf(t.err, "  hint: %s\n", clean(p.Hint))
		}
		if len(p.Queues) > 0 {
			fmt.Fprintf(t.err, "  queues: %s\n", clean(strings.Join(p.Queues, ", ")))
		}
		return
	}
	if t.json {
		b, _ := json.Marshal(map[string]string{"error": err.Error()}) // strings always encode
		fmt.Fprintf(t.err, "%s\n", b)
		return
	}
	if list := (config.Errors)(nil); errors.As(err, &list) {
		fmt.Fprintln(t.err, cleanText(list.Error()))
		return
	}
	fmt.Fprintf(t.err, "redrive: %s\n", cleanText(err.Error()))
}

// grouped writes a number with commas between thousands.
func grouped(n int64) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// ago writes how long ago a time was: "3s ago", "2h ago", or "-".
func ago(at, now time.Time) string {
	if at.IsZero() {
		return "-"
	}
	d := now.Sub(at)
	if d < 0 {
		return "in " + roughly(-d)
	}
	return roughly(d) + " ago"
}

// roughly writes a duration in its largest unit or two.
func roughly(d time.Duration) string {
	switch {
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return d.Round(time.Second).String()
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 24*time.Hour:
		return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%dd%02dh", int(d.Hours())/24, int(d.Hours())%24)
}

// bytesText writes a number of bytes for people: "3.1 MB".
func bytesText(n int64) string {
	const step = 1000
	if n < step {
		return fmt.Sprintf("%d B", n)
	}
	v, units := float64(n), "kMGTPE"
	i := -1
	for v >= step && i < len(units)-1 {
		v /= step
		i++
	}
	return fmt.Sprintf("%.1f %cB", v, units[i])
}
