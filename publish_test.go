package redrive_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/backend/memory"
)

// sinkFunc is a function as a Sink.
type sinkFunc func(msgs []redrive.Message) []error

func (f sinkFunc) Publish(_ context.Context, msgs []redrive.Message) []error { return f(msgs) }

type sendSMS struct {
	To string `json:"to"`
}

func (sendSMS) Kind() string { return "sms.send" }

func TestPublishMakesAMessage(t *testing.T) {
	at := time.Unix(1_700_000_000, 0)
	for _, c := range []struct {
		name string
		body any
		o    []redrive.PublishOption
		want redrive.Message
	}{
		{"of bytes", []byte("\x00raw"), nil, redrive.Message{Body: []byte("\x00raw")}},
		{"of a string", "text", nil, redrive.Message{Body: []byte("text")}},
		{"of JSON", json.RawMessage(`{"a": 1}`), nil, redrive.Message{Body: []byte(`{"a": 1}`)}},
		{"of a value that tells its kind", sendSMS{To: "x"}, nil, redrive.Message{Kind: "sms.send", Body: []byte(`{"to":"x"}`)}},
		{"of another kind", sendSMS{To: "x"}, []redrive.PublishOption{redrive.WithKind("other")}, redrive.Message{Kind: "other", Body: []byte(`{"to":"x"}`)}},
		{"with every option", nil, []redrive.PublishOption{
			redrive.WithID("id1"), redrive.WithKind("k"), redrive.WithKey("key"), redrive.WithDelay(time.Second), redrive.WithDeliverAt(at),
			redrive.WithExpiry(at.Add(time.Hour)), redrive.WithReplyTo("answers"), redrive.WithHeader("a", "1"), redrive.WithHeader("a", "2"),
		}, redrive.Message{ID: "id1", Kind: "k", Key: "key", Delay: time.Second, DeliverAt: at, ExpiresAt: at.Add(time.Hour), ReplyTo: "answers",
			Headers: redrive.Headers{{Name: "a", Value: []byte("1")}, {Name: "a", Value: []byte("2")}}, Body: []byte("null")}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got []redrive.Message
			err := redrive.Publish(context.Background(), sinkFunc(func(msgs []redrive.Message) []error {
				got = msgs
				return nil
			}), "sms", c.body, c.o...)
			if err != nil {
				t.Fatal(err)
			}
			c.want.Queue = "sms"
			if diff := cmp.Diff([]redrive.Message{c.want}, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestPublishReturnsTheSinksError(t *testing.T) {
	placed := &redrive.Error{Op: "store", Queue: "other", ID: "i", Err: redrive.ErrFull}
	for _, want := range []error{redrive.ErrConflict, redrive.ErrBacklogged, redrive.ErrUnknown, placed} {
		err := redrive.Publish(context.Background(), sinkFunc(func(msgs []redrive.Message) []error {
			msgs[0].ID = "given"
			return []error{want}
		}), "q", "x")
		var e *redrive.Error
		if !errors.Is(err, want) || !errors.As(err, &e) {
			t.Errorf("%v, want %v", err, want)
			continue
		}
		if errors.Is(placed, want) {
			if err != want { //nolint:errorlint // it is not wrapped again
				t.Errorf("%v, want %v as it is", err, want)
			}
		} else if e.Op != "publish" || e.Queue != "q" || e.ID != "given" {
			t.Errorf("%+v: no place", e)
		}
	}
}

// The same again succeeds, whoever repeats it; who wants to know learns it. Another body,
// kind or key is a conflict.
func TestPublishAgain(t *testing.T) {
	store := memory.New()
	defer store.Close()
	publish := func(body string, o ...redrive.PublishOption) (duplicate bool, err error) {
		err = redrive.Publish(t.Context(), store, "q", body, append([]redrive.PublishOption{redrive.WithID("i"), redrive.WithDuplicate(&duplicate)}, o...)...)
		return duplicate, err
	}
	for _, want := range []bool{false, true, true} {
		if duplicate, err := publish("x"); err != nil || duplicate != want {
			t.Errorf("duplicate %t, %v, want %t", duplicate, err, want)
		}
	}
	for what, publish := range map[string]func() (bool, error){
		"body": func() (bool, error) { return publish("y") },
		"kind": func() (bool, error) { return publish("x", redrive.WithKind("k")) },
		"key":  func() (bool, error) { return publish("x", redrive.WithKey("k")) },
	} {
		duplicate, err := publish()
		var e *redrive.Error
		if duplicate || !errors.Is(err, redrive.ErrConflict) || !errors.As(err, &e) || e.Queue != "q" || e.ID != "i" {
			t.Errorf("another %s: duplicate %t, %v", what, duplicate, err)
		}
	}
}

func TestPublishRefusesWhatNoStoreTakes(t *testing.T) {
	sink := sinkFunc(func([]redrive.Message) []error {
		t.Error("it was published")
		return nil
	})
	for name, err := range map[string]error{
		"a queue's name":  redrive.Publish(context.Background(), sink, "No Queue", "x"),
		"an id":           redrive.Publish(context.Background(), sink, "q", "x", redrive.WithID("a/b")),
		"a negative time": redrive.Publish(context.Background(), sink, "q", "x", redrive.WithDelay(-1)),
		"a body":          redrive.Publish(context.Background(), sink, "q", func() {}),
	} {
		var e *redrive.Error
		if !errors.Is(err, redrive.ErrInvalid) || !errors.As(err, &e) || e.Hint == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
}
