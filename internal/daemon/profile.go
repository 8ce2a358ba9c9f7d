package daemon

import (
	"net/http"
	"runtime/pprof"
	"runtime/trace"
	"strconv"
	"sync"
	"time"

	"github.com/redrive/redrive/internal/problem"
)

// Bounds of a profile that takes time, in seconds.
const (
	profileSeconds    = 10
	profileMaxSeconds = 60
)

// profileNames are what can be asked for: what net/http/pprof offers but the command line, which may hold secrets.
var profileNames = []string{"allocs", "block", "goroutine", "heap", "mutex", "profile", "threadcreate", "trace"}

// profile streams a profile of this process, for go tool pprof or go tool trace: "profile" of the processor and "trace"
// for so many seconds, one at a time; the others as they are, as text with debug=1 or 2.
func (a *app) profile(w http.ResponseWriter, r *http.Request, who *caller) error {
	if err := who.confine(""); err != nil {
		return err
	}
	v, err := parameters(r, "seconds", "debug")
	if err != nil {
		return err
	}
	seconds, debug := profileSeconds, 0
	if text := v.Get("seconds"); text != "" {
		if seconds, err = strconv.Atoi(text); err != nil || seconds < 1 || seconds > profileMaxSeconds {
			return bad("seconds are 1 to "+strconv.Itoa(profileMaxSeconds), "")
		}
	}
	if text := v.Get("debug"); text != "" {
		if debug, err = strconv.Atoi(text); err != nil || debug < 0 || debug > 2 {
			return bad("debug is 0, 1 or 2", "")
		}
	}
	switch name := r.PathValue("profile"); name {
	case "profile":
		return a.timed(w, r, seconds, func() error { return pprof.StartCPUProfile(w) }, pprof.StopCPUProfile)
	case "trace":
		return a.timed(w, r, seconds, func() error { return trace.Start(w) }, trace.Stop)
	default:
		p := pprof.Lookup(name)
		if p == nil {
			return problem.New(http.StatusNotFound, "no-route", "Not found", "there is no profile "+strconv.Quote(name), "use profile, trace, heap, allocs, goroutine, mutex, block or threadcreate")
		}
		media := "application/octet-stream"
		if debug > 0 {
			media = "text/plain; charset=utf-8"
		}
		w.Header().Set("Content-Type", media)
		return p.WriteTo(w, debug)
	}
}

// profiling is held while a profile of the processor or a trace is made: the runtime makes one at a time.
var profiling sync.Mutex

// timed writes to the answer between start and stop, until the time is over or the client has left.
func (a *app) timed(w http.ResponseWriter, r *http.Request, seconds int, start func() error, stop func()) error {
	busy := problem.New(http.StatusConflict, "profiling", "A profile is being made", "the runtime makes one at a time", "try again when it is over").After(time.Second)
	if !profiling.TryLock() {
		return busy
	}
	defer profiling.Unlock()
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(time.Duration(seconds)*time.Second + time.Minute))
	w.Header().Set("Content-Type", "application/octet-stream")
	if err := start(); err != nil { // a program that embeds the server makes one
		w.Header().Del("Content-Type")
		return busy
	}
	defer stop()
	select {
	case <-time.After(time.Duration(seconds) * time.Second):
	case <-r.Context().Done():
	}
	return nil
}
