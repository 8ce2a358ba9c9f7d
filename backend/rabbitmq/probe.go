package rabbitmq

import (
	"context"
	"errors"
	"strconv"

	"github.com/redrive/redrive/driver"

	amqp "github.com/rabbitmq/amqp091-go"
)

// enoughDeliveries is a delivery limit that prefetched neighbours of a message that
// crashes its process again and again do not reach.
const enoughDeliveries = 1000

// Probe implements driver.Source. What a policy of the broker adds to the queue is not
// seen by AMQP.
func (s *Source) Probe(ctx context.Context) []driver.Finding {
	var q described
	err := s.look(ctx, func(*amqp.Channel) error {
		s.mu.Lock()
		n := s.session
		s.mu.Unlock()
		if n == nil {
			return errors.New("the connection was lost")
		}
		var err error
		q, err = describe(n.conn, s.a.queue)
		return err
	})
	if err != nil {
		return []driver.Finding{{
			Level: driver.LevelWarn, Setting: "queue " + s.a.queue, Value: err.Error(),
			Promise: "it is not known what the queue promises", Hint: "see its arguments with: rabbitmqctl list_queues name durable arguments policy",
		}}
	}
	return append(q.findings(), driver.Finding{
		Level: driver.LevelOK, Setting: "consumer_timeout", Value: "30m by default",
		Promise: "a message whose handler runs longer is taken away with its channel, and comes again", Hint: "keep the timeout of the policy below it, or raise it in rabbitmq.conf",
	})
}

func (q *described) findings() []driver.Finding {
	kind := q.args[amqp.QueueTypeArg]
	durable := driver.Finding{Level: driver.LevelOK, Setting: "durable and x-queue-type", Value: strconv.FormatBool(q.durable) + " and " + kind}
	switch {
	case !q.durable:
		durable.Level, durable.Promise, durable.Hint = driver.LevelWarn, "the queue and its messages are lost when the node restarts", "make it anew with durable=true, best as a quorum queue"
	case kind == amqp.QueueTypeQuorum:
		durable.Promise = "a confirmed message is on the disks of most of the queue's nodes"
	default:
		durable.Promise, durable.Hint = "a confirmed message is on the disk of one node, and is lost with it", "a quorum queue on three nodes survives the loss of one"
	}
	all := []driver.Finding{durable, q.limited(kind), q.deadLettered(kind)}
	for _, name := range []string{"x-message-ttl", "x-expires", "x-max-length", "x-max-length-bytes"} {
		if v := q.shortened(name); v.Setting != "" {
			all = append(all, v)
		}
	}
	return all
}

// limited tells of the number of deliveries after which the broker gives up.
func (q *described) limited(kind string) driver.Finding {
	limit, there := q.args["x-delivery-limit"]
	v := driver.Finding{Level: driver.LevelOK, Setting: "x-delivery-limit", Value: limit, Promise: "the broker gives no message up before Redrive does"}
	n, err := strconv.ParseInt(limit, 10, 64)
	switch {
	case kind != amqp.QueueTypeQuorum:
		v.Value = "none"
	case !there:
		v.Value, v.Hint = "none", "on servers from 4.0 on the default is 20: set x-delivery-limit there"
	case err == nil && n >= 0 && n < enoughDeliveries:
		v.Level, v.Promise = driver.LevelWarn, "the broker gives up messages that were only prefetched beside one that crashes its process"
		v.Hint = "raise x-delivery-limit, by a policy if the queue must stay"
	}
	return v
}

func (q *described) deadLettered(kind string) driver.Finding {
	exchange, there := q.args["x-dead-letter-exchange"]
	v := driver.Finding{Level: driver.LevelOK, Setting: "x-dead-letter-exchange", Value: exchange, Promise: "what the broker gives up itself is published there"}
	switch {
	case !there:
		v.Value, v.Promise = "none", "what the broker gives up itself, by an age, a length or a number of deliveries, is gone"
	case kind != amqp.QueueTypeQuorum || q.args["x-dead-letter-strategy"] != "at-least-once" || q.args[amqp.QueueOverflowArg] != amqp.QueueOverflowRejectPublish:
		v.Level, v.Promise = driver.LevelWarn, "what the broker dead-letters itself may be lost on the way"
		v.Hint = "a quorum queue with x-dead-letter-strategy=at-least-once and x-overflow=reject-publish"
	case exchange != "":
		v.Hint = "no client can ask whether a queue is bound there: rabbitmqctl list_bindings tells; until one is, dead letters stay in this queue"
	}
	return v
}

// shortened tells of an argument by which messages go that nobody has handled.
func (q *described) shortened(name string) (v driver.Finding) {
	value, there := q.args[name]
	if !there || (name == "x-max-length" || name == "x-max-length-bytes") && q.args[amqp.QueueOverflowArg] == amqp.QueueOverflowRejectPublish {
		return v
	}
	return driver.Finding{
		Level: driver.LevelWarn, Setting: name, Value: value, Promise: "the broker removes messages that nobody has handled",
		Hint: "remove it; against a flood use x-overflow=reject-publish, which refuses the newest instead",
	}
}
