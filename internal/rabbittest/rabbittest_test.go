package rabbittest

import (
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

func TestANodeKeepsWhatItConfirmed(t *testing.T) {
	n := Start(t, Options{Vhosts: []string{"second"}})
	ch, err := n.Dial(t).Channel()
	if err != nil {
		t.Fatal(err)
	}
	args := amqp.Table{"x-queue-type": "classic"} // it is there as soon as the node is
	if _, err := ch.QueueDeclare("kept", true, false, false, false, args); err != nil {
		t.Fatal(err)
	}
	if err := ch.Confirm(false); err != nil {
		t.Fatal(err)
	}
	c, err := ch.PublishWithDeferredConfirmWithContext(t.Context(), "", "kept", true, false, amqp.Publishing{Body: []byte("x"), DeliveryMode: amqp.Persistent})
	if err != nil || !c.Wait() {
		t.Fatal("not confirmed:", err)
	}
	kept := func(after string) {
		t.Helper()
		if err := n.Restart(); err != nil {
			t.Fatal(err)
		}
		ch, err := n.Dial(t).Channel()
		if err != nil {
			t.Fatal(err)
		}
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for end := time.Now().Add(time.Minute); ; <-tick.C {
			q, err := ch.QueueDeclare("kept", true, false, false, false, args)
			if err != nil {
				t.Fatal(err)
			}
			if q.Messages == 1 {
				return
			}
			if time.Now().After(end) {
				t.Fatal("the message is gone after the", after)
			}
		}
	}
	n.Kill()
	if _, err := amqp.Dial(n.URL("/")); err == nil {
		t.Error("a killed node answers")
	}
	kept("kill")
	if err := n.Stop(); err != nil {
		t.Fatal(err)
	}
	kept("stop")
	if c, err := amqp.Dial(n.URL("second")); err != nil {
		t.Error("the second host:", err)
	} else {
		_ = c.Close()
	}
}
