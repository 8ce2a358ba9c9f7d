package engine

import (
	"log/slog"
	"time"

	"github.com/redrive/redrive/driver"
)

// Options configures an [Engine]. Every field has a default.
type Options struct {
	// Instance names this process start. Defaults to a new id.
	Instance string
	// Logger gets a line for each end of a message's life and each trouble, with
	// queue and id. Defaults to [slog.Default].
	Logger *slog.Logger
	// Observer feeds telemetry. Optional.
	Observer Observer
	// Grace is how long claimed work may go on after Run's context ended, before it
	// is cancelled and released. Defaults to 20 s.
	Grace time.Duration
	// Service, Version and Environment stand in every failure. They default to the
	// program's name, its module version and "development".
	Service, Version, Environment string
	// Backlog refuses what handlers emit into queues above their limit. Optional.
	Backlog Backlog
	// Masks are what results leave out of the failures that they tell of. Optional.
	Masks driver.Masks
}

// QueueOptions configures how one queue is consumed. Every field has a default.
type QueueOptions struct {
	// Concurrency is the number of slots: handlers of this queue that run at once in
	// this process. Defaults to 64.
	Concurrency int
	// Lease is how long a claim holds without extension. Defaults to 30 s, at least
	// 1 s. It is extended at a third of it, for as long as the handler runs.
	Lease time.Duration
	// Policies say how often and when a message is tried, and what errors mean: backoff
	// and classifier are in each policy.
	Policies Policies
	// Extractor adds to the metadata of failures. Optional.
	Extractor Extractor
	// Target names what the handler delivers to. The breaker and pauses are kept by
	// target if it is set, else by kind.
	Target string
	// Gates are asked in addition to the engine's own.
	Gates []driver.Gate
	// Breaker can be switched off or tuned. The zero value is the default.
	Breaker BreakerOptions
	// Sources are asked beside the engine's store, such as a broker. What they cannot
	// do by themselves is parked in the store.
	Sources []driver.Source
	// DeadLetters takes dead letters instead of the queue's own store. Optional.
	DeadLetters driver.DeadLetterSink
}

// Option is [Options] or [QueueOptions], for [Run].
type Option interface{ apply(*Options, *QueueOptions) }

func (o Options) apply(all *Options, _ *QueueOptions) { *all = o } //nolint:gocritic // it is called once

func (o QueueOptions) apply(_ *Options, queue *QueueOptions) { *queue = o } //nolint:gocritic // it is called once

// Defaults of Options and QueueOptions.
const (
	DefaultGrace       = 20 * time.Second
	DefaultConcurrency = 64
	DefaultLease       = 30 * time.Second
	minLease           = time.Second
)

// Backlog knows how full queues are; [backlog.Limiter] is one.
type Backlog interface {
	// Level says how full a queue is, and when to try again if it is [driver.LevelRefused].
	// It is safe for concurrent use.
	Level(queue string) (level driver.Level, retryAfter time.Duration)
}
