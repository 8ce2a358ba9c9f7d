// Package backend opens a store or a source by its address, for programs that let a
// user choose where messages wait. A program that knows its backend opens it by the
// backend's own package, and carries no other client.
package backend

import (
	"context"
	"fmt"
	"log/slog"
	"strings"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/backend/jetstream"
	"github.com/redrive/redrive/backend/kafka"
	"github.com/redrive/redrive/backend/mysql"
	"github.com/redrive/redrive/backend/postgres"
	"github.com/redrive/redrive/backend/rabbitmq"
	"github.com/redrive/redrive/backend/redislist"
	"github.com/redrive/redrive/backend/redisstream"
	"github.com/redrive/redrive/backend/sqlite"
	"github.com/redrive/redrive/driver"
)

// Open opens the store at an address: "sqlite:DIR", "postgres://...", "mysql://...",
// "redis://..." (rediss:// with TLS, redis+sentinel://, redis+cluster://). Its parameters are
// those of the store's package. It fails if a server cannot be reached before ctx ends.
// The caller closes the store. Errors do not show a password. embedded are options of a store
// in this process, and change nothing for others.
func Open(ctx context.Context, address string, embedded ...sqlite.Option) (driver.Store, error) {
	scheme, rest, ok := strings.Cut(address, ":")
	if !ok {
		scheme = "none"
	}
	switch scheme {
	case "sqlite":
		return opened(sqlite.Open(rest, embedded...))
	case "postgres", "postgresql":
		return opened(postgres.Open(ctx, address))
	case "mysql", "mariadb":
		return opened(mysql.Open(ctx, address))
	case "redis", "rediss", "redis+sentinel", "rediss+sentinel", "redis+cluster", "rediss+cluster":
		return opened(redisstream.Open(ctx, address))
	}
	return nil, &redrive.Error{Op: "open", Err: fmt.Errorf("a store of scheme %s is not known", scheme),
		Hint: "write sqlite:DIR, postgres://user@host/database, mysql://user@host/database or redis://host:6379"}
}

// SourceSink is a source that messages can be published to.
type SourceSink interface {
	driver.Source
	redrive.Sink
}

// SourceOptions configures [OpenSource].
type SourceOptions struct {
	// Queue is what the topic, queue or stream is called in Redrive.
	Queue string
	// Native keeps at the broker what failed: retries and dead letters that the source
	// can do itself are not parked in a store.
	Native bool
	// Ordered keeps the order of messages of one key, also across retries, with a store that
	// does. See Caps.Ordered for whether the source can.
	Ordered bool
	// Log gets what a source on Kafka or NATS reports. Defaults to slog.Default.
	Log *slog.Logger
}

// OpenSource opens the source of a queue, which is no store: "kafka://host:9092/TOPIC?group=GROUP"
// or, for a share group (experimental), "kafka://host:9092/TOPIC?share=GROUP"
// (with TLS: "kafkas"),
// "nats://host:4222/STREAM?consumer=NAME" (with TLS: "natss" or "tls"),
// "rabbitmq://user@host:5672/VHOST?queue=NAME" (with TLS: "rabbitmqs"),
// or "redislist://host:6379/0?prefix=NAME" (with TLS: "redislists") for the list of the
// queue there, or with list=KEY and from=left or right for one that others push to. See Open.
func OpenSource(ctx context.Context, address string, o SourceOptions) (SourceSink, error) {
	scheme, rest, _ := strings.Cut(address, ":")
	var s SourceSink
	var err error
	switch scheme {
	case "kafka", "kafkas":
		options := kafka.Options{Queue: o.Queue, Native: o.Native, Ordered: o.Ordered, Log: o.Log}
		if kafka.Shared(address) {
			s, err = kafka.OpenShare(ctx, address, options)
		} else {
			s, err = kafka.Open(ctx, address, options)
		}
	case "nats", "natss", "tls":
		s, err = jetstream.Open(ctx, address, jetstream.Options{Queue: o.Queue, Native: o.Native, Log: o.Log})
	case "rabbitmq", "rabbitmqs":
		s, err = rabbitmq.Open(ctx, address, rabbitmq.Options{Queue: o.Queue, Native: o.Native})
	case "redislist", "redislists":
		s, err = redislist.Open(ctx, strings.Replace(scheme, "list", "", 1)+":"+rest, redislist.Options{KeepDead: o.Native})
	default:
		err = &redrive.Error{Op: "open", Queue: o.Queue, Err: fmt.Errorf("a source of scheme %s is not known", scheme), Hint: "write kafka://host:9092/topic, nats://host:4222/STREAM, rabbitmq://host:5672/?queue=name or redislist://host:6379"}
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

// opened keeps a nil pointer from becoming a store.
func opened[S driver.Store](s S, err error) (driver.Store, error) {
	if err != nil {
		return nil, err
	}
	return s, nil
}
