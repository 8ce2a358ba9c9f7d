package problem_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/problem"
)

func TestOfMapsErrorsToStatuses(t *testing.T) {
	for err, want := range map[error]int{
		redrive.ErrBacklogged:                  429,
		redrive.ErrConflict:                    409,
		redrive.ErrFull:                        507,
		redrive.ErrClosed:                      503,
		redrive.ErrNotFound:                    404,
		redrive.ErrState:                       409,
		redrive.ErrLoop:                        409,
		redrive.ErrUncertain:                   409,
		fmt.Errorf("%w x", redrive.ErrInvalid): 400,
		errors.New("dial tcp 10.0.0.7:5432"):   500,
	} {
		if got := problem.Of(err); got.Status != want || !errors.Is(got, err) {
			t.Errorf("%v: status %d, want %d", err, got.Status, want)
		}
	}
}

// What comes over the wire is the error that was meant on the other side, and every error
// that can cross it has a status and a title.
func TestErrorsComeBackFromTheWire(t *testing.T) {
	for _, err := range []error{
		redrive.ErrBacklogged, redrive.ErrConflict, redrive.ErrDuplicate, redrive.ErrFull, redrive.ErrClosed, redrive.ErrUnknown, redrive.ErrCorrupt, redrive.ErrInUse,
		redrive.ErrInvalid, redrive.ErrNotFound, redrive.ErrLoop, redrive.ErrUncertain, redrive.ErrBodyGone, redrive.ErrBodyCorrupt, redrive.ErrState, redrive.ErrLeaseLost, redrive.ErrVersion,
		redrive.ErrUnsupported, redrive.ErrUnavailable, context.DeadlineExceeded, context.Canceled,
	} {
		sent := problem.Of(fmt.Errorf("here: %w", err))
		got := new(problem.Problem)
		if jerr := json.Unmarshal(sent.AppendJSON(nil), got); jerr != nil || errors.Is(got, err) == (driver.ErrorNamed(got.Name()) == nil) || got.Name() != driver.ErrorName(err) || got.Internal() {
			t.Errorf("%v comes back as %v (%s, %d), %v", err, got, got.Name(), got.Status, jerr)
		}
	}
	if errors.Is(problem.New(404, "queue-not-found", "", "", ""), redrive.ErrNotFound) {
		t.Error("a name that is no error's stands for one")
	}
}

func TestInternalErrorsAreNotShown(t *testing.T) {
	p := problem.Of(errors.New("dial tcp 10.0.0.7:5432"))
	if p.Detail != "" || !p.Internal() {
		t.Errorf("detail %q reaches the caller", p.Detail)
	}
	for _, kind := range []error{redrive.ErrUnavailable, redrive.ErrUnknown, context.Canceled, context.DeadlineExceeded} {
		if p := problem.Of(fmt.Errorf("%w: dial tcp 10.0.0.7:5432", kind)); strings.Contains(p.Error(), "10.0") || p.Status < 503 || p.Status == 503 && p.RetryAfter == 0 {
			t.Errorf("%+v", p)
		}
	}
}

func TestHintsOfTheRootPackageAreKept(t *testing.T) {
	p := problem.Of(&redrive.Error{Op: "publish", Queue: "q", ID: "x", Err: fmt.Errorf("%w kind", redrive.ErrInvalid), Hint: "do this"})
	if p.Hint != "do this" || p.Detail != "q/x: invalid kind" {
		t.Errorf("got %+v", p)
	}
}

func TestWrite(t *testing.T) {
	w := httptest.NewRecorder()
	problem.Of(redrive.ErrBacklogged).After(1500*time.Millisecond).Write(w, httptest.NewRequest(http.MethodPost, "/v1/a%20b", nil))
	if w.Code != 429 || w.Header().Get("Retry-After") != "2" || w.Header().Get("Content-Type") != problem.ContentType {
		t.Fatalf("got %d, %v", w.Code, w.Header())
	}
	var got map[string]any
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"type": "urn:redrive:problem:backlogged", "title": "The queue is above its limit", "status": 429.0,
		"detail": redrive.ErrBacklogged.Error(), "instance": "/v1/a%20b", "retry_after": 2.0,
		"hint": "nothing was stored; repeat after the time in Retry-After",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}
