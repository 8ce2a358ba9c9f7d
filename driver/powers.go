package driver

import (
	"context"
	"time"

	"github.com/redrive/redrive"
)

// The optional powers: what some stores, sources, sinks and handlers can do beyond their contract.
// Who needs one asks with [As], which finds it below decorators, too.
type (
	// A StatsStore tells of its own work, as those in a database server do.
	StatsStore interface{ Stats() StoreStats }

	// A StatsSource tells of itself, as those on a broker do.
	StatsSource interface {
		SourceStats(ctx context.Context) (SourceStats, error)
	}

	// A RoomyStore knows whether its disk is full: Full returns why it takes no messages, or nil,
	// FullSince since when. Room returns what the disk has left and its size, in bytes, or an
	// error where the system does not say.
	RoomyStore interface {
		Full() error
		FullSince() time.Time
		Room() (free, size int64, err error)
	}

	// A SettingsStore tells what [Store.Configure] told it of a queue, with defaults filled in.
	SettingsStore interface {
		Settings(ctx context.Context, queue string) (QueueSettings, error)
	}

	// A LossyStore keeps messages where other programs may delete them. AcknowledgeLoss counts what
	// the ledger of a queue lacks as dropped, and returns how many that were, so that [Store.Verify]
	// and the ledger tell of the next ones only. It is for people who know why.
	LossyStore interface {
		AcknowledgeLoss(ctx context.Context, queue string) (int64, error)
	}

	// A StreamStore keeps its queues in streams that other programs may read and write.
	StreamStore interface {
		Monitor(ctx context.Context, queue string) (*StreamMonitor, error)
	}

	// ProcessingSource is a source, which is no Store, that lists what is in flight.
	ProcessingSource interface {
		Processing(ctx context.Context, queue string, limit int) ([]redrive.Entry, error)
	}

	// A DeadLetterSink takes a dead letter somewhere else than to its own queue. A nil
	// error means that it is durable there; the message is then settled as done in its
	// queue. An error leaves it to the engine, which keeps it as a dead letter.
	DeadLetterSink interface {
		DeadLetter(ctx context.Context, e *redrive.Entry) error
	}

	// A LimitedSink refuses what is above the limits of a queue's backlog.
	LimitedSink interface {
		// Level tells how full a queue is, and when to try again above the hard limit.
		Level(queue string) (level Level, retryAfter time.Duration)
		// Room tells above the soft limit what is left, of how many, and when there will
		// be more; all zero below it.
		Room(queue string) (left, limit int64, reset time.Duration)
	}

	// A KindHandler is a handler that names the kinds that it handles.
	KindHandler interface {
		// Kinds returns the kinds, and whether all others are handled, too.
		Kinds() (kinds []string, all bool)
	}

	// A Registry is a handler that handles certain kinds, each with options of its own,
	// as a [redrive.Mux] does.
	Registry interface {
		KindHandler
		Lookup(kind string) *redrive.Registration
		Err() error
	}
)

// KindsOf returns the kinds that a handler names; all: it takes any.
func KindsOf(h redrive.Handler) (kinds []string, all bool) {
	if k, names := h.(KindHandler); names {
		return k.Kinds()
	}
	return nil, true
}

// Decorated is what a decorator of a store, a source or a sink has, so that [As] finds the
// powers of what it decorates.
type Decorated interface{ Unwrap() any }

// As returns the first of v, what v decorates, and so on, that has a power, and whether
// there is one.
func As[T any](v any) (T, bool) {
	for v != nil {
		if power, ok := v.(T); ok {
			return power, true
		}
		d, ok := v.(Decorated)
		if !ok {
			break
		}
		v = d.Unwrap()
	}
	var none T
	return none, false
}
