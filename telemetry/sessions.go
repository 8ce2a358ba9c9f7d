package telemetry

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
)

// IngressSession is the ingress of what came in over WebSocket.
const IngressSession = "websocket"

// IngressSpool is the ingress of what was spooled because the store was away. It counts
// under its own ingress, too.
const IngressSpool = "spool"

// Spooled counts messages that were put into the spool.
func (m *Metrics) Spooled(n int) { m.accepted.WithLabelValues(IngressSpool).Add(float64(n)) }

// AcceptedBySession counts messages that came in over WebSocket.
func (m *Metrics) AcceptedBySession(n int) {
	m.accepted.WithLabelValues(IngressSession).Add(float64(n))
}

var (
	sessionConnected = desc("redrive_websocket_connections", "Connections that are open.")
	sessionOpened    = desc("redrive_websocket_sessions_total", "Sessions that connections began with: new, resumed, or new because the one asked for was gone.", "how")
	sessionClosed    = desc("redrive_websocket_closed_total", "Connections that ended, by close code.", "code")
	sessionMessages  = desc("redrive_websocket_messages_total", "Messages of sessions, by what became of them.", "what")
	sessionResults   = desc("redrive_websocket_results_total", "Results of sessions: pushed, or expired because nobody acknowledged them.", "what")
)

// SessionStats is what the WebSocket gateway of a process counted since its start.
type SessionStats struct {
	Connected, Opened, Resumed, Gaps int64
	Published, Refused               int64
	Pushed, Expired                  int64
	Closed                           map[int]int64 // by close code
}

// Sessions collects the metrics of the WebSocket gateway.
type Sessions struct{ stats func() SessionStats }

// NewSessions returns a collector of what stats tells at each scrape.
func NewSessions(stats func() SessionStats) *Sessions { return &Sessions{stats: stats} }

// Describe implements prometheus.Collector.
func (s *Sessions) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{sessionConnected, sessionOpened, sessionClosed, sessionMessages, sessionResults} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (s *Sessions) Collect(ch chan<- prometheus.Metric) {
	st := s.stats()
	count := func(d *prometheus.Desc, n int64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
	}
	ch <- prometheus.MustNewConstMetric(sessionConnected, prometheus.GaugeValue, float64(st.Connected))
	count(sessionOpened, st.Opened-st.Gaps, "new")
	count(sessionOpened, st.Resumed, "resumed")
	count(sessionOpened, st.Gaps, "lost")
	for code, n := range st.Closed {
		count(sessionClosed, n, strconv.Itoa(code))
	}
	count(sessionMessages, st.Published, "published")
	count(sessionMessages, st.Refused, "refused")
	count(sessionResults, st.Pushed, "pushed")
	count(sessionResults, st.Expired, "expired")
}
