package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"sync"
	"time"
)

// mode is how a simulated provider behaves.
type mode int

const (
	well   mode = iota
	broken      // 500 at once
	hangs       // no answer
	resets      // the connection is closed
	quota       // 429 beyond the phase's rate
)

// phase is a mode from a part of the script to another.
type phase struct {
	from, to float64 // parts of the script's length
	mode     mode
	rate     int // of quota, in calls a second
}

// provider is a third party as a real HTTP server with a script.
type provider struct {
	name   string
	server *httptest.Server
	script []phase
	began  time.Time
	length time.Duration

	mu       sync.Mutex
	load     int // calls since it was asked last
	accepted map[string]int
	second   int64
	used     int
}

func newProvider(name string, length time.Duration, script ...phase) *provider {
	p := &provider{name: name, script: script, began: time.Now(), length: length, accepted: make(map[string]int)}
	p.server = httptest.NewServer(p)
	return p
}

func (p *provider) now() phase {
	at := float64(time.Since(p.began)) / float64(p.length)
	for _, ph := range p.script {
		if at >= ph.from && at < ph.to {
			return ph
		}
	}
	return phase{}
}

// over takes a call of this second, and reports whether it is beyond the rate.
func (p *provider) over(rate int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s := time.Now().Unix(); s != p.second {
		p.second, p.used = s, 0
	}
	p.used++
	return p.used > rate
}

// ServeHTTP implements http.Handler.
func (p *provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	p.load++
	p.mu.Unlock()
	switch ph := p.now(); ph.mode {
	case broken:
		http.Error(w, "out of order", http.StatusInternalServerError)
		return
	case hangs:
		<-r.Context().Done()
		return
	case resets:
		panic(http.ErrAbortHandler)
	case quota:
		if p.over(ph.rate) {
			w.Header().Set("Retry-After", "1")
			http.Error(w, "too many", http.StatusTooManyRequests)
			return
		}
	}
	var m sms
	if err := json.NewDecoder(r.Body).Decode(&m); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	p.mu.Lock()
	p.accepted[m.ID]++
	p.mu.Unlock()
	w.WriteHeader(http.StatusAccepted)
}

// takeLoad returns the calls since it was called last.
func (p *provider) takeLoad() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := p.load
	p.load = 0
	return n
}
