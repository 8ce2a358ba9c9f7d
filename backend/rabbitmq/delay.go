package rabbitmq

import (
	"fmt"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// Delays. A message that is to wait goes through queues whose times to live are powers of
// two seconds, one for each bit that its delay has in seconds: 25 of them in a virtual
// host make any delay up to a year, in whole seconds, rounded up. In each all messages
// wait as long, so that nobody waits for one before it. Each level is an exchange that
// looks at its bit in the routing key: with it, the message waits in the level's queue,
// which dead-letters it to the next level; without, it goes there at once. After the last
// it goes by its last word to the queue that it is for.
//
// The queues are quorum queues that dead-letter at least once: what waits survives the
// death of its node, and a step is repeated rather than lost.
const (
	delayLevels = 25
	// MaxDelay is the longest delay at the broker.
	MaxDelay = 365 * 24 * time.Hour

	delayName    = "redrive.delay-"
	delayedQueue = "redrive.delayed" // the exchange after the last level
)

// levelName names the exchange, and the queue, of a level.
func levelName(level int) string {
	if level < 0 {
		return delayedQueue
	}
	return fmt.Sprintf("%s%02d", delayName, level)
}

// delayKey is the routing key of a delay, and the level at which it begins; -1: none.
func delayKey(seconds int64, queue string) (key string, level int) {
	var b strings.Builder
	level = -1
	for bit := delayLevels - 1; bit >= 0; bit-- {
		if seconds>>bit&1 == 1 {
			level = max(level, bit)
			b.WriteString("1.")
		} else {
			b.WriteString("0.")
		}
	}
	return b.String() + queueWord(queue), level
}

// queueWord is one word of a routing key that names a queue.
func queueWord(queue string) string {
	if len(queue) <= 128 && strings.Trim(queue, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_:-") == "" && queue != "" {
		return queue
	}
	return driver.DeriveID("amqp", queue)
}

// delayed is a message on its way to the queue, after a delay.
func (s *Source) delayed(m *redrive.Message, after time.Duration, more ...redrive.Header) outgoing {
	o := outgoing{msg: write(m, more...)}
	seconds := int64((after + time.Second - 1) / time.Second)
	key, level := delayKey(seconds, s.a.queue)
	if level < 0 {
		o.key = s.a.queue
		return o
	}
	o.exchange, o.key = levelName(level), key
	return o
}

// declareDelays makes what delays need, or looks whether it is there.
func (s *Source) declareDelays(ch *amqp.Channel) error {
	if !s.a.declare {
		for level := range delayLevels {
			if _, err := ch.QueueDeclarePassive(levelName(level), true, false, false, false, nil); err != nil {
				return err
			}
			if err := ch.ExchangeDeclarePassive(levelName(level), "topic", true, false, false, false, nil); err != nil {
				return err
			}
		}
		return ch.ExchangeDeclarePassive(delayedQueue, "topic", true, false, false, false, nil)
	}
	for level := -1; level < delayLevels; level++ {
		if err := ch.ExchangeDeclare(levelName(level), "topic", true, false, false, false, nil); err != nil {
			return err
		}
		if level < 0 {
			continue
		}
		if err := declareLevel(ch, level); err != nil {
			return err
		}
	}
	return ch.QueueBind(s.a.queue, strings.Repeat("*.", delayLevels)+queueWord(s.a.queue), delayedQueue, false, nil)
}

func declareLevel(ch *amqp.Channel, level int) error {
	name, next := levelName(level), levelName(level-1)
	if _, err := ch.QueueDeclare(name, true, false, false, false, amqp.Table{
		amqp.QueueTypeArg: amqp.QueueTypeQuorum, amqp.QueueMessageTTLArg: int64(1000) << level, "x-dead-letter-exchange": next,
		"x-dead-letter-strategy": "at-least-once", amqp.QueueOverflowArg: amqp.QueueOverflowRejectPublish, "x-delivery-limit": unlimited,
	}); err != nil {
		return err
	}
	before := strings.Repeat("*.", delayLevels-1-level)
	if err := ch.QueueBind(name, before+"1.#", name, false, nil); err != nil {
		return err
	}
	return ch.ExchangeBind(next, before+"0.#", name, false, nil)
}
