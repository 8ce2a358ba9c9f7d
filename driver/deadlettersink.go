package driver

import (
	"context"

	"github.com/redrive/redrive"
)

// DeadLetterSink takes a dead letter somewhere else than to its own queue. A nil
// error means that it is durable there; the message is then settled as done in its
// queue. An error leaves it to the engine, which keeps it as a dead letter.
type DeadLetterSink interface {
	SetAside(ctx context.Context, e *redrive.Entry) error
}
