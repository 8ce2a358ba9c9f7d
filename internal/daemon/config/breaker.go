package config

import (
	"fmt"

	"github.com/redrive/redrive/engine"
)

// Breaker holds a queue back while its target fails as a whole: nothing is claimed but one
// message now and then, until one succeeds. Answers about the message itself (400, 413,
// 415, 422) do not count as failures.
type Breaker struct {
	// Off switches it off.
	Off bool `yaml:"off" json:"off,omitempty"`
	// Window is how far back attempts count. Defaults to 10s.
	Window Duration `yaml:"window" json:"window,omitempty"`
	// MinAttempts is how many attempts within the window it takes. Defaults to 20.
	MinAttempts int `yaml:"min_attempts" json:"min_attempts,omitempty"`
	// MinMessages is of how many messages these must be, at most 256. Defaults to 10.
	MinMessages int `yaml:"min_messages" json:"min_messages,omitempty"`
	// Share of these attempts that failed, from which on it opens. Defaults to 90%.
	Share Percent `yaml:"share" json:"share,omitempty"`
	// LastFailed is how many of the last attempts must all have failed. Defaults to 10.
	LastFailed int `yaml:"last_failed" json:"last_failed,omitempty"`
	// ProbeMin is the time between probes, at first. It doubles with each failure. Defaults to 1s.
	ProbeMin Duration `yaml:"probe_min" json:"probe_min,omitempty"`
	// ProbeMax is the longest time between probes. Defaults to 30s.
	ProbeMax Duration `yaml:"probe_max" json:"probe_max,omitempty"`
}

func (b *Breaker) check(k *checker, path string) {
	if b == nil {
		return
	}
	if b.Off && *b != (Breaker{Off: true}) {
		k.bad(path+".off", "a breaker that is off has no other settings", "remove them, or remove off")
	}
	for _, number := range []struct {
		name string
		n    int
	}{{"min_attempts", b.MinAttempts}, {"min_messages", b.MinMessages}, {"last_failed", b.LastFailed}} {
		if at := path + "." + number.name; number.n < 0 || number.n == 0 && k.given(at) {
			k.bad(at, "it must be at least 1", "leave it out for the default")
		}
	}
	if b.MinMessages > engine.MaxBreakerMessages {
		k.bad(path+".min_messages", fmt.Sprintf("it must be at most %d", engine.MaxBreakerMessages), "so many messages are remembered for each target or kind")
	}
	if b.ProbeMin > 0 && b.ProbeMax > 0 && b.ProbeMax < b.ProbeMin {
		k.bad(path+".probe_max", "it is shorter than probe_min", "")
	}
}

// BreakerOf returns the breaker of a queue for the engine.
func (c *Config) BreakerOf(queue string) engine.BreakerOptions {
	q := c.Queues[queue]
	if q == nil || q.Breaker == nil {
		return engine.BreakerOptions{}
	}
	b := q.Breaker
	return engine.BreakerOptions{
		Off: b.Off, Window: b.Window.Std(), MinAttempts: b.MinAttempts, MinMessages: b.MinMessages, Share: float64(b.Share),
		LastFailed: b.LastFailed, ProbeMin: b.ProbeMin.Std(), ProbeMax: b.ProbeMax.Std(),
	}
}
