package rabbitmq

import (
	"errors"
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
var inequivalent = regexp.MustCompile(`inequivalent arg '([^']+)' for queue .*: received .* but current is (none|the value '(.*)' of type '([a-z]+)'|'(.*)')`)

// describe learns the arguments of a queue. AMQP has no question for them, but a
// declaration that differs is refused with the first difference: so a declaration is
// mended until only a type is wrong that no queue has, so that nothing is ever made.
func describe(conn *amqp.Connection, queue string) (described, error) {
	d := described{durable: true, args: make(map[string]string)}
	known := amqp.Table{amqp.QueueTypeArg: "redrive-none"}
	for range 32 {
		ch, err := conn.Channel()
		if err != nil {
			return d, err
		}
		_, err = ch.QueueDeclare(queue, d.durable, false, false, false, maps.Clone(known))
		var refused *amqp.Error
		if !errors.As(err, &refused) || refused.Code != amqp.PreconditionFailed {
			return d, errors.Join(err, ch.Close())
		}
		m := inequivalent.FindStringSubmatch(refused.Reason)
		if m == nil {
			return d, err
		}
		name := m[1]
		switch {
		case name == "durable":
			d.durable = !d.durable
			continue
		case name == amqp.QueueTypeArg:
			if d.args[name] = m[3]; m[3] == "" {
				d.args[name] = amqp.QueueTypeClassic
			}
			return d, nil
		}
		d.args[name] = m[3]
		known[name] = typed(m[3], m[4])
	}
	return d, errors.New("its arguments cannot be learnt")
}

// typed is a value as the broker had it.
func typed(text, kind string) any {
	if n, err := strconv.ParseInt(text, 10, 64); err == nil && kind != "longstr" {
		return n
	}
	if kind == "bool" {
		return text == "true"
	}
	return text
}
