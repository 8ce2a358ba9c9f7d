// Package receiver is an HTTP target for trying things out and for tests: it takes
// deliveries, fails a chosen share of them, and keeps count of what it saw.
package receiver

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/delivery"
	"github.com/redrive/redrive/internal/headername"
)

// Paths that the receiver answers itself. Every other path takes deliveries.
const (
	PathStats = "/__stats" // GET: totals, or those of one message with ?id=
	PathIDs   = "/__ids"   // GET: a JSON line a message, in order of their ids
	PathHeal  = "/__heal"  // POST: it stops failing
)

// Options configures a Receiver. Every field has a default.
type Options struct {
	// Fail is the share of requests to fail, from 0 to 1. Defaults to none.
	Fail float64
	// Sticky fails the same messages each time: whether one fails is decided by its
	// id and the seed. Otherwise each request is decided anew, by its number too.
	Sticky bool
	// Status is what a failed request is answered with. Defaults to 500.
	Status int
	// Seed makes the choice repeatable.
	Seed uint64
	// Delay is how long each answer takes. Defaults to none.
	Delay time.Duration
	// Secret checks signatures; a request without a valid one is answered 401.
	Secret string
	// Output is called with each effect, one at a time. Optional.
	Output func(Effect)
}

// Effect is one request that was received.
type Effect struct {
	Time    time.Time `json:"time"`
	ID      string    `json:"id"`
	Queue   string    `json:"queue,omitempty"`
	Kind    string    `json:"kind,omitempty"`
	Attempt int       `json:"attempt"`
	Bytes   int       `json:"bytes"`
	SHA256  string    `json:"sha256"`
	Status  int       `json:"status"`
	Error   string    `json:"error,omitempty"`
}

// Stats are totals since the start.
type Stats struct {
	Requests  int64 `json:"requests"`
	Accepted  int64 `json:"accepted"`  // requests answered 200
	Failed    int64 `json:"failed"`    // requests failed on purpose
	Refused   int64 `json:"refused"`   // requests with no id, no valid signature or no whole body
	Messages  int64 `json:"messages"`  // different ids seen
	Delivered int64 `json:"delivered"` // different ids accepted
	Repeated  int64 `json:"repeated"`  // acceptances of an id beyond its first
	Changed   int64 `json:"changed"`   // requests whose body differs from the first of their id
	Healed    bool  `json:"healed"`
}

// MessageStats are the totals of one message.
type MessageStats struct {
	ID       string `json:"id"`
	Requests int    `json:"requests"`
	Accepted int    `json:"accepted"`
	SHA256   string `json:"sha256"` // of the first body
}

// Receiver is an http.Handler. It is safe for concurrent use.
type Receiver struct {
	options Options
	keys    [][]byte

	mu       sync.Mutex
	healed   bool
	stats    Stats
	messages map[string]*MessageStats

	output sync.Mutex // one effect at a time, outside of mu
}

// New returns a receiver, or an error that wraps [redrive.ErrInvalid].
func New(o Options) (*Receiver, error) {
	invalid := func(what, hint string) error {
		return &redrive.Error{Op: "receive", Err: fmt.Errorf("%w: %s", redrive.ErrInvalid, what), Hint: hint}
	}
	if o.Status == 0 {
		o.Status = http.StatusInternalServerError
	}
	switch {
	case o.Fail < 0 || o.Fail > 1 || math.IsNaN(o.Fail):
		return nil, invalid(fmt.Sprintf("share of failures %g", o.Fail), "use 0% to 100%")
	case o.Status < 300 || o.Status > 599:
		return nil, invalid(fmt.Sprintf("status %d", o.Status), "use a status from 300 to 599")
	case o.Delay < 0:
		return nil, invalid(fmt.Sprintf("delay of %s", o.Delay), "a delay is zero or more")
	}
	r := &Receiver{options: o, messages: make(map[string]*MessageStats)}
	if o.Secret != "" {
		key, err := delivery.ParseSecret(o.Secret)
		if err != nil {
			return nil, err
		}
		r.keys = [][]byte{key}
	}
	return r, nil
}

// Heal makes the receiver accept everything from now on.
func (r *Receiver) Heal() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.healed = true
	r.stats.Healed = true
}

// Stats returns the totals.
func (r *Receiver) Stats() Stats {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stats
}

// Messages returns the totals of every message, in order of their ids.
func (r *Receiver) Messages() []MessageStats {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make([]MessageStats, 0, len(r.messages))
	for _, m := range r.messages {
		all = append(all, *m)
	}
	slices.SortFunc(all, func(a, b MessageStats) int {
		if a.ID < b.ID {
			return -1
		}
		return 1
	})
	return all
}

// ServeHTTP implements http.Handler.
func (r *Receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	switch req.URL.Path {
	case PathStats:
		r.serveStats(w, req)
	case PathIDs:
		r.serveIDs(w, req)
	case PathHeal:
		if req.Method != http.MethodPost {
			http.Error(w, "use POST", http.StatusMethodNotAllowed)
			return
		}
		r.Heal()
		writeJSON(w, r.Stats())
	default:
		r.receive(w, req)
	}
}

func (r *Receiver) serveStats(w http.ResponseWriter, req *http.Request) {
	id := req.URL.Query().Get("id")
	if id == "" {
		writeJSON(w, r.Stats())
		return
	}
	r.mu.Lock()
	m, ok := r.messages[id]
	var found MessageStats
	if ok {
		found = *m
	}
	r.mu.Unlock()
	if !ok {
		http.Error(w, "no request with this webhook-id was received", http.StatusNotFound)
		return
	}
	writeJSON(w, found)
}

func (r *Receiver) serveIDs(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/x-ndjson")
	enc := json.NewEncoder(w)
	for _, m := range r.Messages() {
		if enc.Encode(m) != nil {
			return // the reader is gone
		}
	}
}

func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // the reader may be gone
}

// receive takes one delivery.
func (r *Receiver) receive(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, redrive.MaxBodySize))
	sum := sha256.Sum256(body)
	attempt, _ := strconv.Atoi(req.Header.Get(headername.Attempt)) // 0: not there
	e := Effect{
		Time:    time.Now(),
		ID:      req.Header.Get("Webhook-Id"),
		Queue:   req.Header.Get(headername.Queue),
		Kind:    req.Header.Get(headername.Kind),
		Attempt: attempt,
		Bytes:   len(body),
		SHA256:  hex.EncodeToString(sum[:]),
		Status:  http.StatusOK,
	}
	if err != nil {
		e.Status, e.Error = http.StatusBadRequest, err.Error()
	} else if err := r.verify(req, body, e.Time); err != nil {
		e.Status, e.Error = http.StatusUnauthorized, err.Error()
	} else if e.ID == "" {
		e.Status, e.Error = http.StatusBadRequest, "no webhook-id header"
	}
	if r.options.Delay > 0 {
		t := time.NewTimer(r.options.Delay)
		defer t.Stop()
		select {
		case <-t.C:
		case <-req.Context().Done():
		}
	}
	r.record(&e)
	if r.options.Output != nil {
		r.output.Lock()
		r.options.Output(e)
		r.output.Unlock()
	}
	if e.Status != http.StatusOK {
		http.Error(w, e.Error, e.Status)
		return
	}
	w.WriteHeader(http.StatusOK)
}

func (r *Receiver) verify(req *http.Request, body []byte, now time.Time) error {
	if req.Method != http.MethodPost {
		return errors.New("deliveries are POST requests")
	}
	if r.keys == nil {
		return nil
	}
	return delivery.Verify(r.keys, req.Header, body, now, 0)
}

// record counts an effect and decides whether it fails on purpose.
func (r *Receiver) record(e *Effect) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stats.Requests++
	if e.Status != http.StatusOK {
		r.stats.Refused++
		return
	}
	m := r.messages[e.ID]
	if m == nil {
		m = &MessageStats{ID: e.ID, SHA256: e.SHA256}
		r.messages[e.ID] = m
		r.stats.Messages++
	}
	m.Requests++
	if m.SHA256 != e.SHA256 {
		r.stats.Changed++
	}
	if r.fails(m) {
		e.Status, e.Error = r.options.Status, "failed on purpose"
		r.stats.Failed++
		return
	}
	r.stats.Accepted++
	if m.Accepted++; m.Accepted == 1 {
		r.stats.Delivered++
	} else {
		r.stats.Repeated++
	}
}

// fails decides by a hash, so that it does not depend on the order of requests.
func (r *Receiver) fails(m *MessageStats) bool {
	if r.healed || r.options.Fail == 0 {
		return false
	}
	number := 0
	if !r.options.Sticky {
		number = m.Requests
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%d %d %s", r.options.Seed, number, m.ID))
	return float64(binary.BigEndian.Uint64(sum[:])>>11)/(1<<53) < r.options.Fail
}
