package kafka

import (
	"context"
	"log/slog"
	"time"
)

// A record is reported when it has been in flight for slowAfter. It is looked for each slowEvery.
const (
	slowAfter = 30 * time.Second
	slowEvery = time.Second
)

// watch reports slow records as long as a source lives.
func watch(alive context.Context, report func(now time.Time)) {
	tick := time.NewTicker(slowEvery)
	defer tick.Stop()
	for {
		select {
		case now := <-tick.C:
			report(now)
		case <-alive.Done():
			return
		}
	}
}

// reportSlow reports each record once that holds the committed offset of its partition back:
// after slowAfter, or as soon as its window is nearly full.
func (s *Source) reportSlow(now time.Time) {
	var slow []slowReport
	s.mu.Lock()
	for _, p := range s.epochs {
		if r, ok := p.slowLocked(now); ok {
			slow = append(slow, r)
		}
	}
	s.mu.Unlock()
	for _, r := range slow {
		s.o.Log.LogAttrs(s.alive, slog.LevelWarn, "slow record holds back the committed offset of its partition", slog.String("queue", s.o.Queue),
			slog.String("topic", r.topic), slog.Int("partition", int(r.number)), slog.Int64("offset", r.offset), slog.String("id", r.id),
			slog.Duration("in_flight", r.inFlight), slog.Int64("acked_above", r.above), slog.Bool("window_nearly_full", r.full))
	}
}

// slowReport is what is reported of a slow record.
type slowReport struct {
	place
	offset   int64
	id       string
	inFlight time.Duration
	above    int64 // acked records that wait for it; of a share group: newer ones
	full     bool  // soon the partition delivers no more
}

// slowLocked returns the record at the committed offset if it is to be reported now.
func (p *partition) slowLocked(now time.Time) (slowReport, bool) {
	h, ok := p.inflight[p.window.committed]
	if !ok || h.reported || h.moved || p.ending {
		return slowReport{}, false
	}
	r := slowReport{place: p.place, offset: p.window.committed, id: h.id, inFlight: now.Sub(h.since), above: p.window.above(), full: p.window.nearlyFull(len(p.inflight))}
	if r.above == 0 || r.inFlight < slowAfter && !r.full {
		return slowReport{}, false
	}
	h.reported = true
	p.inflight[p.window.committed] = h
	return r, true
}
