package rabbitmq

import (
	"fmt"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/redrive/redrive"
)

// topology makes what the address names, the first time and if it may, or looks whether
// it is there.
func (s *Source) topology(conn *amqp.Connection, first bool) error {
	on := func(what string, do func(*amqp.Channel) error) error {
		ch, err := conn.Channel() // one that fails is closed
		if err == nil {
			if err = do(ch); err == nil {
				err = ch.Close()
			}
		}
		if err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		return nil
	}
	declare := s.a.declare && first
	if s.o.Native && first {
		if err := on("queue of dead letters "+s.a.deadQueue, func(ch *amqp.Channel) error {
			return s.queue(ch, s.a.deadQueue, declare, amqp.Table{amqp.QueueTypeArg: s.a.kind})
		}); err != nil {
			return err
		}
	}
	if err := on("queue "+s.a.queue, func(ch *amqp.Channel) error { return s.queue(ch, s.a.queue, declare, s.arguments()) }); err != nil {
		return err
	}
	if s.a.exchange != "" && first {
		if err := on("exchange "+s.a.exchange, func(ch *amqp.Channel) error {
			return ch.ExchangeDeclarePassive(s.a.exchange, "direct", true, false, false, false, nil)
		}); err != nil {
			return err
		}
	}
	if !s.o.Native || !first {
		return nil
	}
	if s.a.dead == DeadDLX {
		if err := s.checkDLX(conn); err != nil {
			return err
		}
	}
	return on("queues of delays", s.declareDelays)
}

func (s *Source) queue(ch *amqp.Channel, name string, declare bool, args amqp.Table) (err error) {
	if declare {
		if args[amqp.QueueTypeArg] == amqp.QueueTypeQuorum {
			args["x-delivery-limit"] = unlimited
		}
		_, err = ch.QueueDeclare(name, true, false, false, false, args)
	} else {
		_, err = ch.QueueDeclarePassive(name, true, false, false, false, nil)
	}
	return err
}

// arguments are those of a queue that is made here.
func (s *Source) arguments() amqp.Table {
	args := amqp.Table{amqp.QueueTypeArg: s.a.kind}
	if s.o.Native && s.a.dead == DeadDLX {
		args["x-dead-letter-exchange"], args["x-dead-letter-routing-key"] = "", s.a.deadQueue
		args["x-dead-letter-strategy"], args[amqp.QueueOverflowArg] = "at-least-once", amqp.QueueOverflowRejectPublish
	}
	return args
}

// checkDLX looks whether what the queue rejects is not lost on the way: at a reject, nobody
// would hear of it. Whether an exchange leads it to a queue cannot be asked by AMQP, and a
// message that tries would be somebody's. What finds no queue stays in this one.
func (s *Source) checkDLX(conn *amqp.Connection) error {
	q, err := describe(conn, s.a.queue)
	if err != nil {
		return err
	}
	exchange, there := q.args["x-dead-letter-exchange"]
	bad := func(what string) error {
		return fmt.Errorf("%w queue %s for dead=dlx: %s", redrive.ErrInvalid, s.a.queue, what)
	}
	switch {
	case !there:
		return bad("it has no x-dead-letter-exchange: what is rejected would be gone")
	case q.args[amqp.QueueTypeArg] != amqp.QueueTypeQuorum || q.args["x-dead-letter-strategy"] != "at-least-once":
		return bad("it does not dead-letter at least once: it must be a quorum queue with x-dead-letter-strategy=at-least-once")
	case q.args[amqp.QueueOverflowArg] != amqp.QueueOverflowRejectPublish:
		return bad("without x-overflow=reject-publish it falls back to dead-lettering at most once")
	}
	key := q.args["x-dead-letter-routing-key"]
	if key == "" {
		key = s.a.queue
	}
	ch, err := conn.Channel()
	if err != nil {
		return err
	}
	if exchange == "" {
		if _, err := ch.QueueDeclarePassive(key, true, false, false, false, nil); err != nil {
			return fmt.Errorf("queue of dead letters %s: %w", key, err)
		}
		return ch.Close()
	}
	if err := ch.ExchangeDeclarePassive(exchange, "direct", true, false, false, false, nil); err != nil {
		return fmt.Errorf("exchange of dead letters: %w", err)
	}
	return ch.Close()
}
