package redrive

import "time"

// BreakerOptions tunes the breaker of a queue: it tells an outage of the target from
// a poison message. A zero field means its default.
type BreakerOptions struct {
	Off         bool
	Window      time.Duration // attempts that ended within it are looked at; 10 s
	MinAttempts int           // fewer attempts decide nothing; 20
	MinMessages int           // nor do attempts of fewer messages; 10
	Share       float64       // of failed attempts that opens it; 0.9
	LastFailed  int           // and none of the last so many succeeded; 10
	ProbeMin    time.Duration // between probes, at first; 1 s
	ProbeMax    time.Duration // between probes, at most; 30 s
}
