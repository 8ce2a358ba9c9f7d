package receiver_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/delivery"
	"github.com/redrive/redrive/delivery/receiver"
)

func mustNew(t *testing.T, o receiver.Options) *receiver.Receiver {
	t.Helper()
	r, err := receiver.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func post(r http.Handler, id, body string) int {
	req := httptest.NewRequest(http.MethodPost, "/hook", strings.NewReader(body))
	req.Header.Set("webhook-id", id)
	req.Header.Set("redrive-attempt", "2")
	w := httptest.NewRecorder()
	r.ServeHTTP(w, req)
	return w.Code
}

func get(t *testing.T, r http.Handler, path string, into any) int {
	t.Helper()
	w := httptest.NewRecorder()
	r.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	if w.Code == http.StatusOK {
		if err := json.Unmarshal(w.Body.Bytes(), into); err != nil {
			t.Fatal(err)
		}
	}
	return w.Code
}

func TestStickyFailsTheSameMessages(t *testing.T) {
	const messages = 2000
	r := mustNew(t, receiver.Options{Fail: 0.2, Sticky: true, Seed: 7, Status: 503})
	first := make(map[int]int)
	for i := range messages {
		first[i] = post(r, fmt.Sprint("m-", i), "x")
	}
	failed := 0
	for i := range messages {
		if again := post(r, fmt.Sprint("m-", i), "x"); again != first[i] {
			t.Fatalf("m-%d: %d, then %d", i, first[i], again)
		}
		if first[i] == 503 {
			failed++
		} else if first[i] != 200 {
			t.Fatalf("m-%d: %d", i, first[i])
		}
	}
	if failed < messages/10 || failed > messages*3/10 {
		t.Errorf("%d of %d failed, want about a fifth", failed, messages)
	}
	s := r.Stats()
	want := receiver.Stats{Requests: 2 * messages, Accepted: int64(2 * (messages - failed)), Failed: int64(2 * failed), Messages: messages,
		Delivered: int64(messages - failed), Repeated: int64(messages - failed)}
	if s != want {
		t.Errorf("got %+v\nwant %+v", s, want)
	}
}

func TestNotStickyEndsForEach(t *testing.T) {
	r := mustNew(t, receiver.Options{Fail: 0.5, Seed: 7})
	for i := range 100 {
		id := fmt.Sprint("m-", i)
		tries := 0
		for post(r, id, "x") != 200 {
			if tries++; tries > 60 {
				t.Fatalf("%s failed %d times in a row", id, tries)
			}
		}
	}
	if s := r.Stats(); s.Delivered != 100 || s.Failed == 0 {
		t.Errorf("%+v", s)
	}
}

func TestHeal(t *testing.T) {
	r := mustNew(t, receiver.Options{Fail: 1, Sticky: true})
	if got := post(r, "a", "x"); got != 500 {
		t.Fatalf("got %d", got)
	}
	w := httptest.NewRecorder()
	r.ServeHTTP(w, httptest.NewRequest(http.MethodGet, receiver.PathHeal, nil))
	if w.Code != http.StatusMethodNotAllowed {
		t.Errorf("GET heals: %d", w.Code)
	}
	w = httptest.NewRecorder()
	r.ServeHTTP(w, httptest.NewRequest(http.MethodPost, receiver.PathHeal, nil))
	if w.Code != 200 || post(r, "a", "x") != 200 || !r.Stats().Healed {
		t.Errorf("healing: %d, %+v", w.Code, r.Stats())
	}
}

func TestEndpoints(t *testing.T) {
	r := mustNew(t, receiver.Options{})
	post(r, "b", "one")
	post(r, "a", "one")
	post(r, "b", "two")
	var s receiver.Stats
	if get(t, r, receiver.PathStats, &s); s.Requests != 3 || s.Messages != 2 || s.Repeated != 1 || s.Changed != 1 {
		t.Errorf("%+v", s)
	}
	var m receiver.MessageStats
	if get(t, r, receiver.PathStats+"?id=b", &m); m.ID != "b" || m.Accepted != 2 {
		t.Errorf("%+v", m)
	}
	if code := get(t, r, receiver.PathStats+"?id=c", nil); code != http.StatusNotFound {
		t.Errorf("an unknown id: %d", code)
	}
	w := httptest.NewRecorder()
	r.ServeHTTP(w, httptest.NewRequest(http.MethodGet, receiver.PathIDs, nil))
	if lines := strings.Split(strings.TrimSpace(w.Body.String()), "\n"); len(lines) != 2 || !strings.Contains(lines[0], `"id":"a"`) {
		t.Errorf("%q", lines)
	}
}

func TestRefuses(t *testing.T) {
	secret := delivery.NewSecret()
	var effects []receiver.Effect
	r := mustNew(t, receiver.Options{Secret: secret, Output: func(e receiver.Effect) { effects = append(effects, e) }})
	if got := post(r, "a", "x"); got != http.StatusUnauthorized {
		t.Errorf("unsigned: %d", got)
	}
	if got := post(mustNew(t, receiver.Options{}), "", "x"); got != http.StatusBadRequest {
		t.Errorf("no id: %d", got)
	}
	s := httptest.NewServer(r)
	defer s.Close()
	h, err := delivery.New(delivery.Target{URL: s.URL, AllowPrivate: true, Secrets: []string{delivery.NewSecret(), secret}}, delivery.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	if err := h.ServeDelivery(t.Context(), &redrive.Delivery{Message: redrive.Message{ID: "a", Queue: "q", Kind: "k"}, Attempt: 4}); err != nil {
		t.Error(err)
	}
	if len(effects) != 2 || effects[0].Error == "" || effects[1].Attempt != 4 || effects[1].Queue != "q" || effects[1].Kind != "k" || effects[1].Status != 200 {
		t.Errorf("%+v", effects)
	}
	if s := r.Stats(); s.Refused != 1 || s.Accepted != 1 || s.Messages != 1 {
		t.Errorf("%+v", s)
	}
}

func TestDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := mustNew(t, receiver.Options{Delay: time.Hour})
		began := time.Now()
		if post(r, "a", "x"); time.Since(began) != time.Hour { // the bubble's clock
			t.Errorf("answered after %s", time.Since(began))
		}
	})
}

func TestNewRefuses(t *testing.T) {
	for _, o := range []receiver.Options{{Fail: -0.1}, {Fail: 1.1}, {Status: 200}, {Status: 600}, {Delay: -1}, {Secret: "canary"}} {
		if _, err := receiver.New(o); !errors.Is(err, redrive.ErrInvalid) || strings.Contains(err.Error(), "canary") {
			t.Errorf("%+v: %v", o, err)
		}
	}
}
