package driver_test

import (
	"strings"
	"testing"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

func TestResultMessage(t *testing.T) {
	m := &redrive.Message{ID: "m1", Queue: "q", ReplyTo: "answers"}
	f := &redrive.Failure{Message: "no \x00 luck " + strings.Repeat("x", 1000)}
	for _, o := range []redrive.Outcome{redrive.OutcomeRetry, redrive.OutcomeRelease} {
		if _, ok := driver.ResultMessage(m, o, 0, f, nil); ok {
			t.Errorf("a result although it is to be tried again: %s", o)
		}
	}
	if _, ok := driver.ResultMessage(&redrive.Message{ID: "m1", Queue: "q"}, redrive.OutcomeDone, 0, nil, nil); ok {
		t.Error("a result that nobody asked for")
	}

	done, ok := driver.ResultMessage(m, redrive.OutcomeDone, 0, nil, []byte("answer"))
	if !ok || done.Queue != "answers" || string(done.Body) != "answer" || done.Validate() != nil || done.ReplyTo != "" {
		t.Errorf("%+v", done)
	}
	header := func(r *redrive.Message, name, want string) {
		t.Helper()
		if got, _ := r.Headers.Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	header(&done, redrive.HeaderReplyFor, "q/m1")
	header(&done, redrive.HeaderOutcome, "done")
	header(&done, redrive.HeaderReason, "")

	dead, _ := driver.ResultMessage(m, redrive.OutcomeDead, redrive.ReasonExhausted, f, nil)
	header(&dead, redrive.HeaderOutcome, "dead")
	header(&dead, redrive.HeaderReason, "exhausted")
	if text, _ := dead.Headers.Get(redrive.HeaderError); !strings.HasPrefix(text, "no \uFFFD luck") || len(text) > 512 {
		t.Errorf("error: %q", text)
	}
	if dead.ID != done.ID {
		t.Error("one generation has two results")
	}
	m.Generation = 1
	if next, _ := driver.ResultMessage(m, redrive.OutcomeDone, 0, nil, nil); next.ID == done.ID {
		t.Error("two generations share a result")
	}

	m.ReplyTo = "session:s1/42"
	if r, ok := driver.ResultMessage(m, redrive.OutcomeDone, 0, nil, nil); !ok || r.Key != "s1" {
		t.Errorf("of a numbered message: %+v", r)
	} else {
		header(&r, redrive.HeaderReplyNumber, "42")
	}
	m.ReplyTo = "session:s1"
	if r, ok := driver.ResultMessage(m, redrive.OutcomeDone, 0, nil, nil); !ok || r.Queue != driver.ResultQueue || r.Key != "s1" || r.Validate() != nil {
		t.Errorf("of a session: %+v", r)
	}
}
