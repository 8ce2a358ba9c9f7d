package rabbitmq

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/backend/memory"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/engine"
	"github.com/redrive/redrive/internal/brokertest"
	"github.com/redrive/redrive/internal/native"
	"github.com/redrive/redrive/internal/rabbittest"
)

var errPermanent = redrive.Permanent(errors.New("no such number"))

// TestWhatDiesInTheStoreIsBuriedNatively: a message that crashed its process, and was
// parked for that, and one that was never at the broker, go where the queue's dead letters
// go, by each strategy; the source's own go there once.
func TestWhatDiesInTheStoreIsBuriedNatively(t *testing.T) {
	node := rabbittest.Shared(t)
	for _, strategy := range []Dead{DeadConfirm, DeadTx, DeadDLX} {
		t.Run(string(strategy), func(t *testing.T) {
			t.Parallel()
			s := connect(t, addressOf(node, "dead="+string(strategy)), Options{Queue: brokertest.Queue, Native: true})
			store := memory.New()
			parked := redrive.Message{ID: "parked", Queue: brokertest.Queue, Body: []byte("x"), Headers: redrive.Headers{{Name: "tenant", Value: []byte("gold")}}}
			if err := driver.FirstError(store.Publish(t.Context(), []redrive.Message{parked})); err != nil {
				t.Fatal(err)
			}
			publish(t, s, redrive.Message{ID: "pushed"})
			handler := func(context.Context, *redrive.Delivery) error { return errPermanent }
			stop := brokertest.Consume(t, store, 0, handler, engine.QueueOptions{Sources: []driver.Source{s}, DeadLetters: s})
			letters := dead(t, node, s, 2)
			stop()
			for i := range letters {
				got := &letters[i]
				var m redrive.Message
				readTable(&m, got.Headers)
				o, known := native.ReadOriginal(m.Headers)
				history, ok := native.TakeHistory(&m)
				if tenant, _ := m.Headers.Get("tenant"); got.MessageId == "parked" && tenant != "gold" {
					t.Errorf("%q", m.Headers)
				}
				if strategy == DeadDLX && got.MessageId == "pushed" { // the broker's own work
					if ok || got.Headers["x-first-death-reason"] != "rejected" {
						t.Errorf("%+v", got.Headers)
					}
					continue
				}
				if !known || o.Queue != s.a.queue || !ok || history.Reason != redrive.ReasonPermanent || history.Attempts != 1 || history.History.Count != 1 || history.DiedAt.IsZero() {
					t.Errorf("%s: %+v %+v", got.MessageId, o, history)
				}
			}
			counts, err := store.Counts(t.Context(), brokertest.Queue)
			if err != nil || counts[0].AllDead() != 0 {
				t.Errorf("%+v, %v", counts, err)
			}
		})
	}
	s := connect(t, addressOf(node), Options{})
	if err := s.DeadLetter(t.Context(), &redrive.Entry{Message: redrive.Message{ID: "m", Queue: s.o.Queue}}); !errors.Is(err, redrive.ErrUnsupported) {
		t.Error("parked dead letters are not the broker's:", err)
	}
}

// TestSetAsideIsRefusedWithoutItsQueue: the dead letter then stays in the store.
func TestSetAsideIsRefusedWithoutItsQueue(t *testing.T) {
	node := rabbittest.Shared(t)
	s := connect(t, addressOf(node), Options{Native: true})
	if _, err := channel(t, node).QueueDelete(s.a.deadQueue, false, false, false); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := s.DeadLetter(ctx, &redrive.Entry{Message: redrive.Message{ID: "m", Queue: s.o.Queue}}); !errors.Is(err, errUnroutable) {
		t.Error(err)
	}
}
