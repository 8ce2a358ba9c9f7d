package jetstream

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/redrive/redrive/driver"
)

// Probe implements driver.Source.
func (s *Source) Probe(ctx context.Context) []driver.Finding {
	stream, err := s.js.Stream(ctx, s.at.stream)
	if err != nil {
		return []driver.Finding{unanswered("stream "+s.at.stream, err)}
	}
	info := stream.CachedInfo()
	v := streamFindings(&info.Config, info.Cluster)
	consumer, err := stream.Consumer(ctx, s.at.consumer)
	if err != nil {
		return append(v, unanswered("consumer "+s.at.consumer, err))
	}
	v = append(v, consumerFindings(&consumer.CachedInfo().Config)...)
	if s.o.Native {
		dead, err := s.js.Stream(ctx, s.at.dlq)
		if err != nil {
			return append(v, unanswered("stream "+s.at.dlq, err))
		}
		c := dead.CachedInfo().Config
		for _, one := range streamFindings(&c, dead.CachedInfo().Cluster) {
			if one.Level != driver.LevelOK {
				one.Setting = c.Name + ": " + one.Setting
				v = append(v, one)
			}
		}
	}
	return v
}

func unanswered(what string, err error) driver.Finding {
	return driver.Finding{Level: driver.LevelWarn, Setting: what, Value: err.Error(), Promise: "the server does not answer"}
}

// streamFindings says what a stream's settings promise.
func streamFindings(c *jetstream.StreamConfig, cluster *jetstream.ClusterInfo) []driver.Finding {
	return []driver.Finding{stored(c.Storage), replicated(c.Replicas, cluster), kept(c), retained(c.Retention)}
}

func stored(storage jetstream.StorageType) driver.Finding {
	v := driver.Finding{Level: driver.LevelOK, Setting: "storage", Value: storage.String(), Promise: "what is acknowledged is in the server's files"}
	if storage != jetstream.FileStorage {
		v.Level, v.Promise, v.Hint = driver.LevelWarn, "what is acknowledged is lost with the server's process", "use a stream with file storage"
	}
	return v
}

// replicated speaks of the sync interval, too, which no client can ask for.
func replicated(replicas int, cluster *jetstream.ClusterInfo) driver.Finding {
	v := driver.Finding{Setting: "replicas", Value: strconv.Itoa(replicas)}
	if replicas >= 3 && cluster != nil {
		v.Level, v.Promise = driver.LevelOK, "what is acknowledged survives the loss of a server; that of the power of all only with sync_interval: always, which the server does not tell"
		return v
	}
	v.Level, v.Promise = driver.LevelWarn, "what is acknowledged survives the end of the server's process; a loss of power only with sync_interval: always, which the server does not tell: by default the last two minutes are lost, or the stream"
	v.Hint = "set sync_interval: always in the server's jetstream block, and use three replicas"
	return v
}

// kept warns of limits by which messages vanish that nobody has handled.
func kept(c *jetstream.StreamConfig) driver.Finding {
	v := driver.Finding{Level: driver.LevelOK, Setting: "limits", Value: "none", Promise: "messages are kept until they are handled"}
	full := c.MaxMsgs > 0 || c.MaxBytes > 0
	switch {
	case full && c.Discard == jetstream.DiscardOld, c.MaxMsgsPerSubject > 0 && (c.Discard == jetstream.DiscardOld || !c.DiscardNewPerSubject):
		v.Level, v.Value = driver.LevelWarn, fmt.Sprintf("max_msgs %d, max_bytes %d, max_msgs_per_subject %d, discard old", c.MaxMsgs, c.MaxBytes, c.MaxMsgsPerSubject)
		v.Promise, v.Hint = "a message that is not handled yet is removed for a newer one", "set discard: new, so that publishers are refused instead"
	case c.MaxAge > 0:
		v.Level, v.Setting, v.Value = driver.LevelWarn, "max_age", c.MaxAge.String()
		v.Promise, v.Hint = "a message that is not handled within "+c.MaxAge.Round(time.Second).String()+" is removed by the server", "set it to 0, or above the longest outage"
	case full:
		v.Setting, v.Value, v.Promise = "discard", "new", "a full stream refuses publishers"
	}
	return v
}

func retained(r jetstream.RetentionPolicy) driver.Finding {
	v := driver.Finding{Level: driver.LevelOK, Setting: "retention", Value: r.String(), Promise: "the consumer goes on where it was, also if it is made again"}
	if r == jetstream.InterestPolicy {
		v.Level, v.Promise = driver.LevelWarn, "what is published while there is no consumer is not kept"
		v.Hint = "use limits or workqueue retention, or never delete the consumer"
	}
	return v
}

// consumerFindings says what a consumer's settings do to the messages.
func consumerFindings(c *jetstream.ConsumerConfig) []driver.Finding {
	deliver := driver.Finding{Level: driver.LevelOK, Setting: "max_deliver", Value: strconv.Itoa(c.MaxDeliver), Promise: "the server delivers until a message is acknowledged"}
	if c.MaxDeliver > 0 {
		deliver.Level, deliver.Promise = driver.LevelRefused, "a message that was delivered so often, also by restarts, stays in the stream and is never seen again"
		deliver.Hint = "nats consumer edit STREAM " + c.Durable + " --max-deliver=-1 (without --backoff)"
	}
	pending := driver.Finding{Level: driver.LevelOK, Setting: "max_ack_pending", Value: strconv.Itoa(c.MaxAckPending), Promise: "what is in flight does not hold up the stream"}
	if c.MaxAckPending > 0 && c.MaxAckPending < bufferMost {
		pending.Level, pending.Promise = driver.LevelWarn, "at most so many messages are buffered and in flight in all processes together"
		pending.Hint = "it must exceed the slots of all processes; -1 is best: each process bounds what it fetches"
	}
	return []driver.Finding{deliver, pending}
}
