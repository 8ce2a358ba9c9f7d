package daemon

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/backend"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/headername"
)

// replyChecked is a source of whose messages results go only into queues of this daemon:
// whoever may write at the broker chooses the header that asks for one. Each of its deliveries says
// how it is named, which tells it from the store's where they are counted.
type replyChecked struct {
	backend.SourceSink
	app    *app
	warned atomic.Int64 // when a refusal was logged last, in Unix seconds
}

// refusalPause is how often refusals are logged, as strangers may cause any number.
const refusalPause = 60

// Unwrap implements driver.Decorated.
func (s *replyChecked) Unwrap() any { return s.SourceSink }

// Claim implements driver.Source. What is refused stays with the message as a header.
func (s *replyChecked) Claim(ctx context.Context, req driver.ClaimRequest) ([]redrive.Delivery, error) {
	ds, err := s.SourceSink.Claim(ctx, req)
	for i := range ds {
		if ds[i].Identity == 0 {
			ds[i].Identity = s.Caps().Identity
		}
		m := &ds[i].Message
		if m.ReplyTo == "" || s.app.answersInto(m.ReplyTo) {
			continue
		}
		if now := time.Now().Unix(); now-s.warned.Load() >= refusalPause {
			s.warned.Store(now)
			s.app.log.LogAttrs(ctx, slog.LevelWarn, "result dropped: reply_to of a broker message names no configured queue",
				slog.String("queue", m.Queue), slog.String("id", m.ID), slog.String("reply_to", m.ReplyTo))
		}
		m.Headers = append(m.Headers, redrive.Header{Name: headername.ReplyTo, Value: []byte(m.ReplyTo)})
		m.ReplyTo = ""
	}
	return ds, err
}

// answersInto reports whether results of messages at a broker may go into a queue.
func (a *app) answersInto(queue string) bool {
	_, ok := a.conf().Queues[queue]
	return ok
}
