package rabbitmq

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"strconv"

	amqp "github.com/rabbitmq/amqp091-go"
)

// described is what is known of a queue by AMQP. What a policy adds is not seen.
type described struct {
	durable bool
	args    map[string]string
}

// inequivalent is how the broker refuses a declaration of a queue that is there: it
// names one difference.
var inequivalent = regexp.MustCompile(`inequivalent arg '([^']+)' for queue .*: received .* but current is (none|the value '(.*)' of type '[a-z]+'|'(.*)')`)

// question is an argument that no queue has, nor can be made with.
type question struct {
	name   string
	value  any
	quorum bool // only such a queue knows the argument
}

// nonsense asks for all arguments that matter.
var nonsense = []question{
	{amqp.QueueTypeArg, "redrive-none", false}, // first: it tells which of the others are known
	{"x-delivery-limit", int64(-7), true},
	{"x-dead-letter-strategy", "redrive-none", true},
	{amqp.QueueOverflowArg, "redrive-none", false},
	{"x-dead-letter-exchange", int64(-7), false},
	{"x-dead-letter-routing-key", int64(-7), false},
	{amqp.QueueMessageTTLArg, int64(-7), false},
	{"x-expires", int64(-7), false},
	{"x-max-length", int64(-7), false},
	{"x-max-length-bytes", int64(-7), false},
}

// beside returns the arguments of a declaration that asks. A queue that was deleted since is
// not to come into being again: a quorum queue is made with any delivery limit, but not with
// a priority, for which one that is there is not compared.
func (ask *question) beside(known amqp.Table) amqp.Table {
	args := maps.Clone(known)
	args[ask.name] = ask.value
	if ask.quorum {
		args["x-max-priority"] = int64(-7)
	}
	return args
}

// describe learns the arguments of a queue. AMQP has no question for them, but a
// declaration that differs is refused with the first difference. Each declaration here
// has an argument that makes no sense, so that none is ever carried out.
func describe(conn *amqp.Connection, queue string) (described, error) {
	d := described{durable: true, args: make(map[string]string)}
	known := make(amqp.Table)
	asked := make(map[string]bool)
	for _, ask := range nonsense {
		if ask.quorum && d.args[amqp.QueueTypeArg] != amqp.QueueTypeQuorum {
			continue
		}
		for range len(nonsense) + 8 {
			if asked[ask.name] {
				break
			}
			name, err := d.differs(conn, queue, ask.beside(known), known)
			if err != nil {
				return d, err
			}
			asked[name] = true
		}
	}
	if d.args[amqp.QueueTypeArg] == "" {
		d.args[amqp.QueueTypeArg] = amqp.QueueTypeClassic
	}
	return d, nil
}

// differs learns one difference, and returns its name.
func (q *described) differs(conn *amqp.Connection, queue string, args, known amqp.Table) (string, error) {
	ch, err := conn.Channel()
	if err != nil {
		return "", err
	}
	_, err = ch.QueueDeclare(queue, q.durable, false, false, false, args)
	refused, ok := errors.AsType[*amqp.Error](err)
	if !ok {
		return "", errors.Join(fmt.Errorf("the arguments of queue %s cannot be learnt", queue), err, ch.Close())
	}
	m := inequivalent.FindStringSubmatch(refused.Reason)
	if m == nil {
		return "", err
	}
	switch name := m[1]; {
	case name == "durable":
		q.durable = !q.durable
		return "", nil
	case m[2] == "none":
		return name, nil
	default:
		q.args[name] = m[3] + m[4] // one of them
		known[name] = typed(name, q.args[name])
		return name, nil
	}
}

// typed is the value of an argument as the broker takes it.
func typed(name, text string) any {
	switch name {
	case amqp.QueueTypeArg, amqp.QueueOverflowArg, "x-dead-letter-strategy", "x-dead-letter-exchange", "x-dead-letter-routing-key":
		return text
	}
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return n
	}
	if text == "true" || text == "false" {
		return text == "true"
	}
	return text
}
