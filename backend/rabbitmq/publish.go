package rabbitmq

import (
	"context"
	"fmt"
	"time"

	"github.com/redrive/redrive"
)

// Publish implements redrive.Sink. It returns when the broker has confirmed that a queue
// has each message. Delays need [Options.Native]; ids are not remembered.
func (s *Source) Publish(ctx context.Context, msgs []redrive.Message) []error {
	errs := make([]error, len(msgs))
	sends := make([]outgoing, 0, len(msgs))
	of := make([]int, 0, len(msgs))
	for i := range msgs {
		m := &msgs[i]
		after, err := s.fit(m)
		if err != nil {
			errs[i] = err
			continue
		}
		if m.ID == "" {
			m.ID = redrive.NewID()
		}
		fresh := *m
		fresh.PublishedAt = time.Time{}
		o := outgoing{exchange: s.a.exchange, key: s.a.key}
		if after > 0 {
			o = s.delayed(&fresh, after)
		} else {
			o.msg = write(&fresh)
		}
		sends, of = append(sends, o), append(of, i)
	}
	for j, err := range s.out.publish(ctx, sends) {
		errs[of[j]] = err
	}
	return errs
}

// fit reports why a message cannot go to the queue, and how long it is to wait.
func (s *Source) fit(m *redrive.Message) (after time.Duration, err error) {
	if err := m.Validate(); err != nil {
		return 0, err
	}
	refuse := func(err error, hint string) error {
		return &redrive.Error{Op: "publish", Queue: m.Queue, ID: m.ID, Err: err, Hint: hint}
	}
	after = m.Delay
	switch {
	case m.Queue != s.o.Queue:
		return 0, refuse(fmt.Errorf("%w queue: this is queue %s of RabbitMQ", redrive.ErrInvalid, s.a.queue), "publish to queue "+s.o.Queue)
	case !m.DeliverAt.IsZero() || after > 0 && !s.o.Native || after > MaxDelay:
		return 0, refuse(fmt.Errorf("a delay: %w", redrive.ErrUnsupported), "publish it to the store beside RabbitMQ")
	}
	return after, nil
}
