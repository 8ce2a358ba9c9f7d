package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/daemon/config"
	"github.com/redrive/redrive/internal/problem"
)

// quotaExceeded is the registered type of problems about rates and quotas, and the
// policies' names in the RateLimit headers.
const (
	quotaExceeded = "https://iana.org/assignments/http-problem-types#quota-exceeded"
	policyRate    = "rate"
	policyQuota   = "quota"
)

// meters count what callers use. They outlive a change of the configuration.
type meters struct {
	store     driver.Store
	log       *slog.Logger
	instances func() int // that share the rates
	now       func() time.Time

	mu   sync.Mutex
	byID map[string]*meter
}

func newMeters(store driver.Store, log *slog.Logger, instances func() int) *meters {
	return &meters{store: store, log: log, instances: instances, now: time.Now, byID: make(map[string]*meter)}
}

// of returns the meter of a caller, with the limits that it has now.
func (s *meters) of(who *caller) *meter {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.byID[who.id]
	if m == nil {
		m = &meter{all: s, id: who.id}
		s.byID[who.id] = m
	}
	m.configure(who.rate, who.quota)
	m.used.Store(s.now().Unix())
	return m
}

// meter counts what one caller uses.
type meter struct {
	all     *meters
	id      string
	used    atomic.Int64 // when last, in Unix seconds
	written int64        // when that was stored; of the upkeep

	mu    sync.Mutex
	rate  config.Rate
	left  float64 // of the rate
	at    time.Time
	quota *quota // nil: none
}

func (m *meter) configure(rate, limit config.Rate) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if rate != m.rate {
		m.rate, m.at = rate, time.Time{}
	}
	switch {
	case limit.Per == 0:
		m.quota = nil
	case m.quota == nil || m.quota.limit != int64(limit.Count) || m.quota.per != limit.Per:
		m.quota = &quota{store: m.all.store, id: m.id, limit: int64(limit.Count), per: limit.Per}
	}
}

// limited reports whether there is anything to count.
func (m *meter) limited() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.rate.Per > 0 || m.quota != nil
}

// capacity is this process's share of the rate.
func (m *meter) capacity() float64 {
	return max(m.rate.Count/float64(max(m.all.instances(), 1)), 1)
}

// refill adds what time has brought.
func (m *meter) refill(now time.Time) {
	full := m.capacity()
	if m.at.IsZero() {
		m.left = full
	} else if d := now.Sub(m.at); d > 0 {
		m.left = min(m.left+full*float64(d)/float64(m.rate.Per), full)
	}
	m.at = now
}

// wait is the time until n more may be used.
func (m *meter) wait(n float64) time.Duration {
	missing := min(n, m.capacity()) - m.left
	return time.Duration(max(missing, 0) / m.capacity() * float64(m.rate.Per))
}

// take takes up to n, and says why it is less.
func (m *meter) take(ctx context.Context, n int) (got int, why *problem.Problem, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.all.now()
	got = n
	if m.rate.Per > 0 {
		m.refill(now)
		if got = min(n, int(m.left)); got < n {
			why = exceeded(policyRate, fmt.Sprintf("%s for token %s", m.rate, m.id), m.wait(1))
		}
	}
	if m.quota != nil && got > 0 {
		granted, err := m.quota.take(ctx, got)
		if err != nil {
			return 0, nil, err
		}
		if granted < got {
			_, after := m.quota.state()
			got, why = granted, exceeded(policyQuota, fmt.Sprintf("%d/%s for token %s", m.quota.limit, m.quota.per, m.id), after)
		}
	}
	if m.rate.Per > 0 {
		m.left -= float64(got)
	}
	return got, why, nil
}

// giveBack returns what was taken and not used.
func (m *meter) giveBack(n int) {
	if n == 0 {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.left += float64(n)
	if m.quota != nil {
		m.quota.own -= int64(n)
	}
}

func exceeded(policy, detail string, after time.Duration) *problem.Problem {
	p := &problem.Problem{
		Type: quotaExceeded, Title: "The token's limit is reached", Status: http.StatusTooManyRequests, Detail: detail,
		Hint: "nothing was stored; repeat after the time in Retry-After", ViolatedPolicies: []string{policy},
	}
	return p.After(after)
}

// headers tells the limits and what is left of them, by the draft standard.
func (m *meter) headers(h http.Header) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var policies, state []string
	add := func(name string, limit, left, window, reset float64) {
		policies = append(policies, fmt.Sprintf("%q;q=%d;w=%d", name, int64(limit), max(1, int64(math.Ceil(window)))))
		state = append(state, fmt.Sprintf("%q;r=%d;t=%d", name, max(0, int64(left)), max(1, int64(math.Ceil(reset)))))
	}
	if m.rate.Per > 0 {
		m.refill(m.all.now())
		add(policyRate, m.capacity(), m.left, m.rate.Per.Seconds(), m.wait(m.capacity()).Seconds())
	}
	if m.quota != nil {
		left, reset := m.quota.state()
		add(policyQuota, float64(m.quota.limit), float64(left), m.quota.per.Seconds(), reset.Seconds())
	}
	if len(policies) > 0 {
		// The gateway may have reported the queue's limits.
		h.Set("RateLimit-Policy", strings.Join(append(policies, h["Ratelimit-Policy"]...), ", "))
		h.Set("RateLimit", strings.Join(append(state, h["Ratelimit"]...), ", "))
	}
}

// meteredWriter puts the limits into the header at the last moment, when they are
// true.
type meteredWriter struct {
	http.ResponseWriter
	m       *meter
	written bool
}

// Unwrap is for http.ResponseController.
func (w *meteredWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (w *meteredWriter) WriteHeader(status int) {
	if !w.written {
		w.written = true
		w.m.headers(w.Header())
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (w *meteredWriter) Write(b []byte) (int, error) {
	if !w.written {
		w.WriteHeader(http.StatusOK)
	}
	return w.ResponseWriter.Write(b)
}
