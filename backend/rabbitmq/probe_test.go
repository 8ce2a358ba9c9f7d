package rabbitmq

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/internal/rabbittest"
	"github.com/redrive/redrive/internal/servertest"
)

// TestDescribeMakesNoQueue asks about queues that are not there any more.
func TestDescribeMakesNoQueue(t *testing.T) {
	node := rabbittest.Shared(t)
	conn := node.Dial(t)
	for _, kind := range []string{amqp.QueueTypeClassic, amqp.QueueTypeQuorum} {
		for _, ask := range nonsense {
			queue := rabbittest.Name()
			q := described{durable: true, args: map[string]string{}}
			if name, err := q.differs(conn, queue, ask.beside(amqp.Table{amqp.QueueTypeArg: kind}), amqp.Table{}); err == nil {
				t.Errorf("%s of a %s queue that is not there: it differs in %q", ask.name, kind, name)
			}
			_, err := channel(t, node).QueueDeclarePassive(queue, true, false, false, false, nil)
			if refused, ok := errors.AsType[*amqp.Error](err); !ok || refused.Code != amqp.NotFound {
				t.Errorf("%s made a %s queue: %v", ask.name, kind, err)
			}
		}
	}
}

// deadLettering makes a queue that dead-letters at least once to an exchange, which leads
// nowhere yet, and what a source on it needs besides.
func deadLettering(t *testing.T, node *rabbittest.Node) (queue string) {
	t.Helper()
	queue = rabbittest.Name()
	ch := channel(t, node)
	err := ch.ExchangeDeclare(queue, "direct", true, false, false, false, nil)
	if err == nil {
		_, err = ch.QueueDeclare(queue, true, false, false, false, amqp.Table{"x-queue-type": "quorum", "x-dead-letter-strategy": "at-least-once",
			"x-overflow": "reject-publish", "x-dead-letter-exchange": queue, "x-dead-letter-routing-key": "dead"})
	}
	if err == nil {
		_, err = ch.QueueDeclare(queue+".dead", true, false, false, false, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	connect(t, addressOf(node), Options{Native: true}) // it makes the queues of delays
	return queue
}

// TestOpenSendsNothing opens a source whose dead letters others take: the first that they
// get is what is sent to them afterwards.
func TestOpenSendsNothing(t *testing.T) {
	node := rabbittest.Shared(t)
	queue := deadLettering(t, node)
	ch := channel(t, node)
	var got []<-chan amqp.Delivery
	for name, args := range map[string]amqp.Table{
		queue + ".consumed": nil,
		queue + ".kept":     {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": queue + ".expired"},
		queue + ".expired":  nil,
	} {
		_, err := ch.QueueDeclare(name, true, false, false, false, args)
		if err == nil && name != queue+".expired" {
			err = ch.QueueBind(name, "dead", queue, false, nil)
		}
		if err == nil && name != queue+".kept" {
			var to <-chan amqp.Delivery
			to, err = ch.Consume(name, "", true, false, false, false, nil)
			got = append(got, to)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	s := connect(t, at(node.Addr(), "queue="+queue, "dead=dlx"), Options{Native: true})
	s.Probe(t.Context())
	if err := ch.Publish(queue, "dead", true, false, amqp.Publishing{Type: "ours", Expiration: amqp.ImmediatelyExpire}); err != nil {
		t.Fatal(err)
	}
	for _, to := range got {
		if d := <-to; d.Type != "ours" {
			t.Errorf("a message of type %q came through %v", d.Type, d.Headers["x-death"])
		}
	}
}

// TestDeadLetterWithoutAWayStays has no queue take the dead letters at first. Open does not
// look for that, as nothing is lost by it.
func TestDeadLetterWithoutAWayStays(t *testing.T) {
	node := rabbittest.Shared(t)
	if _, err := node.Control("eval", "application:set_env(rabbit, dead_letter_worker_publisher_confirm_timeout, 1000)."); err != nil { // 3 minutes otherwise
		t.Fatal(err)
	}
	queue := deadLettering(t, node)
	s := connect(t, at(node.Addr(), "queue="+queue, "dead=dlx"), Options{Native: true})
	publish(t, s, redrive.Message{ID: "m"})
	ds := claim(t, s, redrive.LaneFresh, 1)
	if err := settle(s, settled(&ds[0], redrive.OutcomeDead)); err != nil {
		t.Fatal(err)
	}
	servertest.Until(t, "the broker finds no way", func() bool {
		out, err := node.Control("eval", "[sys:get_state(P) || {_, P, _, _} <- supervisor:which_children(rabbit_fifo_dlx_sup)].")
		return err == nil && strings.Contains(out, "no_route") && strings.Contains(out, fmt.Sprintf("<<%q>>", queue))
	})
	if err := channel(t, node).QueueBind(queue+".dead", "dead", queue, false, nil); err != nil {
		t.Fatal(err)
	}
	untilReady(t, node, queue+".dead", 1)
}

// contents tells what a node has: what can be declared, and the messages of some queues.
func contents(t testing.TB, node *rabbittest.Node, queues ...string) map[string]string {
	t.Helper()
	text, err := node.Control("export_definitions", "-")
	if err != nil {
		t.Fatal(err)
	}
	var sections map[string]json.RawMessage
	if err := json.Unmarshal([]byte(text), &sections); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	all := make(map[string]string)
	for section, raw := range sections {
		var items []map[string]any
		if json.Unmarshal(raw, &items) != nil {
			continue // the server's version
		}
		for _, item := range items {
			line, err := json.Marshal(item) // in the order of names
			if err != nil {
				t.Fatal(err)
			}
			all[section+" "+string(line)] = "there"
		}
	}
	ch := channel(t, node)
	for _, queue := range queues {
		q, err := ch.QueueDeclarePassive(queue, true, false, false, false, nil)
		if err != nil {
			t.Fatal(err)
		}
		all["messages of "+queue] = fmt.Sprint(q.Messages)
	}
	return all
}

// foreign makes a queue with a message in it, bound to an exchange, as others have.
func foreign(t testing.TB, node *rabbittest.Node) (queue string) {
	t.Helper()
	queue = rabbittest.Name()
	ch := channel(t, node)
	_, err := ch.QueueDeclare(queue, true, false, false, false, nil)
	if err == nil {
		err = ch.QueueBind(queue, queue, "amq.topic", false, nil)
	}
	if err == nil {
		err = ch.Publish("amq.topic", queue, true, false, amqp.Publishing{Body: []byte("theirs")})
	}
	if err != nil {
		t.Fatal(err)
	}
	untilReady(t, node, queue, 1)
	return queue
}
