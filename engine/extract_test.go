package engine

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/text"
)

type brokenError struct{ detail string }

func (e *brokenError) Error() string { return e.detail } // panics on nil

type responseError struct{ status int }

func (e *responseError) Error() string   { return "the server answered" }
func (e *responseError) HTTPStatus() int { return e.status }
func (e *responseError) FailureDetails() map[string]string {
	return map[string]string{"response": "excerpt\x00\xff"}
}

type extractorFunc func(d *redrive.Delivery, err error, f *redrive.Failure)

func (x extractorFunc) Extract(_ context.Context, d *redrive.Delivery, err error, f *redrive.Failure) {
	x(d, err, f)
}

const panicStack = "goroutine 34 [running]:\nexample.com/shop.(*Mailer).Send(0x0)\n\t/src/shop/mail.go:42 +0x1c\n"

var extractDelivery = &redrive.Delivery{Message: redrive.Message{ID: "m1", Queue: "sms", Kind: "sms.send"}, Attempt: 3}

func tell(err error, stack string, x Extractor) *redrive.Failure {
	p := redrive.Policy{}.WithDefaults()
	return newIdentity(Options{}).failure(context.Background(), extractDelivery, err, time.Unix(1_700_000_000, 0), time.Second, stack, &p, "provider", x)
}

// A dead letter tells the full failure history: no field is empty.
func TestFailureIsComplete(t *testing.T) {
	f := tell(&responseError{status: 503}, "", nil)
	f.Reason = redrive.ReasonExhausted // the engine's
	var check func(name string, v reflect.Value)
	check = func(name string, v reflect.Value) {
		if v.IsZero() {
			t.Errorf("%s is empty", name)
		}
		if v.Kind() == reflect.Struct && v.Type() != reflect.TypeFor[time.Time]() {
			for i := range v.NumField() {
				check(name+"."+v.Type().Field(i).Name, v.Field(i))
			}
		}
	}
	check("Failure", reflect.ValueOf(*f))
	if f.Details["http.status"] != "503" || f.Details["response"] != "excerpt��" {
		t.Errorf("details: %q", f.Details)
	}
	if f.Stack != "handler of sms/sms.send" || f.Attempt != 3 || f.Config.Target != "provider" || f.Config.MaxAttempts != redrive.DefaultMaxAttempts {
		t.Errorf("%+v", f)
	}
	if f.Signature != driver.Signature(f) {
		t.Errorf("signature %q", f.Signature)
	}
}

func TestFailureTakesItsIdentityFromTheOptions(t *testing.T) {
	id := newIdentity(Options{Service: "billing", Version: "v7", Environment: "test"})
	if id.service != "billing" || id.version != "v7" || id.environment != "test" || id.host == "" || id.ip == "" || id.pid == 0 {
		t.Errorf("%+v", id)
	}
}

func TestFailureStack(t *testing.T) {
	panicked := &redrive.PanicError{Value: "boom", Stack: panicStack}
	for _, c := range []struct {
		name, given string
		err         error
		want        string
	}{
		{"that was given", "given", panicked, "given"},
		{"of a panic", "", fmt.Errorf("wrapped: %w", panicked), panicStack},
		{"that there is none of", "", errors.New("x"), "handler of sms/sms.send"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := tell(c.err, c.given, nil).Stack; got != c.want {
				t.Errorf("%q", got)
			}
		})
	}
}

func TestFailureSurvivesAnErrorWhoseTextPanics(t *testing.T) {
	var broken *brokenError
	if f := tell(broken, "", nil); f.Message == "" || f.Types[0] != "*engine.brokenError" {
		t.Errorf("%+v", f)
	}
	if f := tell(&brokenError{}, "", nil); f.Message == "" {
		t.Error("an error without text has no message")
	}
}

func TestExtractor(t *testing.T) {
	f := tell(errors.New("x"), "", extractorFunc(func(d *redrive.Delivery, err error, f *redrive.Failure) {
		f.Details = map[string]string{"customer": d.ID + " " + err.Error()}
		f.Message = strings.Repeat("long ", 10_000)
	}))
	if f.Details["customer"] != "m1 x" {
		t.Errorf("details: %q", f.Details)
	}
	if len(f.Message) > 4096 || f.Signature != driver.Signature(f) {
		t.Error("what it added was not bounded and signed")
	}
	f = tell(errors.New("x"), "", extractorFunc(func(_ *redrive.Delivery, _ error, f *redrive.Failure) { f.Signature = "the weather" }))
	if f.Signature != "the weather" {
		t.Errorf("the extractor's cause became %q", f.Signature)
	}
	f = tell(errors.New("x"), "", extractorFunc(func(*redrive.Delivery, error, *redrive.Failure) { panic("no") }))
	if f.Message != "x" || f.Details["extractor"] != "panic: no" {
		t.Errorf("after a panic of the extractor: %+v", f)
	}
}

func TestFailureDoesNotChangeTheErrorsDetails(t *testing.T) {
	shared := map[string]string{"k": "v\x00"}
	err := &sharedDetails{shared}
	if f := tell(err, "", nil); f.Details["k"] != "v�" || shared["k"] != "v\x00" {
		t.Errorf("failure %q, error %q", f.Details, shared)
	}
}

type sharedDetails struct{ m map[string]string }

func (e *sharedDetails) Error() string                     { return "x" }
func (e *sharedDetails) FailureDetails() map[string]string { return e.m }

func TestTraceID(t *testing.T) {
	with := func(parent string) string {
		m := redrive.Message{ID: "m1", Queue: "q"}
		m.Headers.Add("traceparent", parent)
		return TraceID(&m)
	}
	derived := TraceID(&redrive.Message{ID: "m1", Queue: "q"})
	if len(derived) != 32 || !text.IsHex(derived) {
		t.Fatalf("derived: %q", derived)
	}
	for _, c := range []struct{ parent, want string }{
		{"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "4bf92f3577b34da6a3ce929d0e0e4736"},
		{"00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01", "4bf92f3577b34da6a3ce929d0e0e4736"},
		{"00-00000000000000000000000000000000-00f067aa0ba902b7-01", derived},
		{"00-4bf92f3577b34da6a3ce929d0e0e473x-00f067aa0ba902b7-01", derived},
		{"00-4bf92f3577b34da6", derived},
		{"", derived},
	} {
		if got := with(c.parent); got != c.want {
			t.Errorf("%q: %s, want %s", c.parent, got, c.want)
		}
	}
	if again := TraceID(&redrive.Message{ID: "m1", Queue: "q", Lineage: redrive.Lineage{Generation: 1}}); again == derived {
		t.Error("another generation has the same trace")
	}
}
