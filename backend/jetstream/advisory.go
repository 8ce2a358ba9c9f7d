package jetstream

import (
	"encoding/json"
	"log/slog"
	"maps"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"
)

// advisories counts what the server tells about stream and consumer. It tells it once,
// to who listens.
type advisories struct {
	mu    sync.Mutex
	count map[string]int64
}

// observe subscribes to the advisories of our stream and consumer.
func (s *Source) observe() error {
	const prefix = "$JS.EVENT.ADVISORY."
	for _, subject := range []string{
		prefix + "CONSUMER.*." + s.at.stream + "." + s.at.consumer, prefix + "CONSUMER.*.*." + s.at.stream + "." + s.at.consumer,
		prefix + "STREAM.*." + s.at.stream,
	} {
		if _, err := s.nc.Subscribe(subject, s.advisory); err != nil {
			return err
		}
	}
	return nil
}

// advisory is called with each advisory.
func (s *Source) advisory(m *nats.Msg) {
	var a struct {
		Type       string `json:"type"`
		Action     string `json:"action"`
		Sequence   uint64 `json:"stream_seq"`
		Deliveries int    `json:"deliveries"`
		Leader     string `json:"leader"`
	}
	if json.Unmarshal(m.Data, &a) != nil {
		return
	}
	kind := a.Type[strings.LastIndexByte(a.Type, '.')+1:]
	if a.Action != "" {
		kind += " " + a.Action
	}
	s.advised.mu.Lock()
	if s.advised.count == nil {
		s.advised.count = make(map[string]int64)
	}
	s.advised.count[kind]++
	s.advised.mu.Unlock()
	level, text := slog.LevelDebug, "the server advises"
	switch kind {
	case "max_deliver":
		level, text = slog.LevelError, "a message has used up its deliveries and is stuck in the stream: the consumer must have max_deliver -1"
	case "terminated":
		level, text = slog.LevelWarn, "somebody terminated a message: it is not delivered any more"
	case "consumer_action delete", "stream_action delete":
		level, text = slog.LevelWarn, "somebody deleted the stream or its consumer"
		s.check()
	case "consumer_leader_elected", "stream_leader_elected":
		level = slog.LevelInfo
		s.check()
	case "consumer_quorum_lost", "stream_quorum_lost":
		level, text = slog.LevelError, "the stream or its consumer has lost its majority of servers"
	}
	s.o.Log.LogAttrs(s.alive, level, text, slog.String("queue", s.o.Queue), slog.String("stream", s.at.stream), slog.String("consumer", s.at.consumer),
		slog.String("advisory", kind), slog.Uint64("stream_seq", a.Sequence), slog.Int("deliveries", a.Deliveries), slog.String("leader", a.Leader))
}

// Advisories returns how often the server reported what about our stream and consumer since
// the source was opened, such as "max_deliver", "nak" and "consumer_leader_elected". Each
// is logged as well.
func (s *Source) Advisories() map[string]int64 {
	s.advised.mu.Lock()
	defer s.advised.mu.Unlock()
	return maps.Clone(s.advised.count)
}
