package daemon_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/wire"
)

// changes is a stream of events.
type changes struct {
	*bufio.Scanner
	d *rig
}

// listen opens a stream of events with a query.
func (d *rig) listen(query string) *changes {
	d.t.Helper()
	r, err := http.NewRequestWithContext(d.t.Context(), http.MethodGet, d.base+"/v1/events"+query, http.NoBody)
	if err != nil {
		d.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+d.token)
	resp, err := d.http.Do(r)
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() { resp.Body.Close() })
	h := resp.Header
	if resp.StatusCode != http.StatusOK || h.Get("Content-Type") != eventMedia || h.Get("Cache-Control") != "no-store" || h.Get("X-Accel-Buffering") != "no" {
		d.t.Fatalf("%d %v", resp.StatusCode, h)
	}
	s := &changes{bufio.NewScanner(resp.Body), d}
	s.Buffer(nil, 1<<20)
	return s
}

// next returns the next event.
func (s *changes) next() (e wire.Event) {
	s.d.t.Helper()
	for s.Scan() {
		if data, ok := strings.CutPrefix(s.Text(), "data: "); ok {
			decode(s.d.t, []byte(data), &e)
			return e
		}
	}
	s.d.t.Fatalf("the stream is over: %v", s.Err())
	return e
}

// until skips to an event with a topic and a key.
func (s *changes) until(topic, key string) wire.Event {
	s.d.t.Helper()
	for {
		if e := s.next(); e.Topic == topic && e.Key == key {
			return e
		}
	}
}

// whole returns the state that the stream begins with, as it was written.
func (s *changes) whole() string {
	s.d.t.Helper()
	b, err := json.Marshal(s.next())
	var reset struct {
		Topic string
		Item  wire.Reset
	}
	if decode(s.d.t, b, &reset); err != nil || reset.Topic != "reset" {
		s.d.t.Fatalf("it begins with %s, %v", b, err)
	}
	var all strings.Builder
	for range reset.Item.Events {
		b, _ := json.Marshal(s.next())
		all.WriteString(string(b) + "\n")
	}
	return all.String()
}

func TestChangesAreStreamed(t *testing.T) {
	inStores(t, func(t *testing.T, store driver.Store) {
		d := start(t, parse(t, "queues: {sms: {}, mail: {}}"), store)
		s := d.listen("")
		if all := s.whole(); strings.Count(all, "\n") != 2 || !strings.Contains(all, `"key":"mail"`) || !strings.Contains(all, `"key":"sms"`) {
			t.Errorf("it begins with %s", all)
		}
		get[wire.Accepted](d, 202, http.MethodPost, "/v1/queues/sms/messages", "x", "redrive-id", "m")
		b, _ := json.Marshal(s.until("queues", "sms").Item)
		var q wire.Queue
		if decode(t, b, &q); q.Waiting.All != 1 || q.Ledger.Published != 1 {
			t.Errorf("%s", b)
		}
		d.work("sms", `"outcome":"dead","reason":"permanent","failure":{"message":"no stock"}`)
		cause := get[wire.List[wire.Cause]](d, 200, http.MethodGet, "/v1/causes", "").Items[0]
		key := "sms/permanent/" + cause.Signature
		b, _ = json.Marshal(s.until("causes", key).Item)
		var seen wire.Cause
		if decode(t, b, &seen); seen.Count != 1 || seen.Message != "no stock" || seen.Signature != cause.Signature {
			t.Errorf("%s", b)
		}
		plan := get[wire.Plan](d, 201, http.MethodPost, "/v1/plans", `{"action":"drop","filter":{"queue":"sms"},"rate":"1000/s"}`)
		for {
			b, _ = json.Marshal(s.until("plans", plan.ID).Item)
			var p wire.Plan
			if decode(t, b, &p); p.Ended() {
				break
			}
		}
		// Its cause goes; that may have been heard before the end of the plan.
		if all := d.listen("?topics=causes").whole(); all != "" {
			t.Errorf("causes %s", all)
		}
		d.refused(http.StatusBadRequest, "invalid", http.MethodGet, "/v1/events?topics=queues,none", "")
		go d.stop()
		if end, _ := json.Marshal(s.until("end", "").Item); !strings.Contains(string(end), "shutting-down") {
			t.Errorf("it ends with %s", end)
		}
	})
}

// A listener sees what its lists show: of its queues, without what is masked and, without
// read-payload, without the values of answers.
func TestListenersSeeWhatTheirTokensSee(t *testing.T) {
	target := newReceiver(t, nil)
	target.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		w.WriteHeader(http.StatusUnprocessableEntity)
		fmt.Fprintf(w, `{"error":"open","secret":{"error":"hidden-%s"}}`, b)
	})
	queue := fmt.Sprintf(`{deliver: {url: %q, allow_private: true}, mask: ["$.secret"]}`, target.URL)
	d := start(t, parse(t, fmt.Sprintf(`{queues: {sms: %s, mail: %s}, tokens: [{name: root, hash: %q}, {name: reader, hash: %q, scopes: [read]}, {name: confined, hash: %q, scopes: [redrive], queues: [sms]}]}`,
		queue, queue, hash("root"), hash("reader"), hash("confined"))), newStore(t))
	d.token = "root"
	for _, q := range []string{"sms", "mail"} {
		get[wire.Accepted](d, 202, http.MethodPost, "/v1/queues/"+q+"/messages", "7", "redrive-id", "m")
	}
	d.eventually("both are dead", func() bool {
		return len(get[wire.List[wire.Cause]](d, 200, http.MethodGet, "/v1/causes", "").Items) == 2
	})
	plan := get[wire.Plan](d, 201, http.MethodPost, "/v1/plans", `{"action":"redrive","filter":{"queue":"mail","text":"needle"}}`)
	for token, c := range map[string]struct{ sees, not []string }{
		"root":     {[]string{`"sms"`, `"mail"`, `open`, "needle"}, []string{"hidden-7"}},
		"reader":   {[]string{`"sms"`, `"mail"`, plan.ID}, []string{"open", "hidden-7", "needle"}},
		"confined": {[]string{`"sms"`, `open`}, []string{`"mail"`, "hidden-7", plan.ID}},
	} {
		all := d.as(token).listen("").whole()
		for _, want := range c.sees {
			if !strings.Contains(all, want) {
				t.Errorf("%s does not see %s: %s", token, want, all)
			}
		}
		for _, no := range c.not {
			if strings.Contains(all, no) {
				t.Errorf("%s sees %s: %s", token, no, all)
			}
		}
	}
}

// A store that is away shows in the stream, and does not end it.
func TestListenersHearThatTheStoreIsAway(t *testing.T) {
	store := &lostStore{Store: newStore(t)}
	d := start(t, parse(t, "queues: {sms: {}}"), store)
	s := d.listen("?topics=queues")
	s.whole()
	store.away.Store(true)
	if e, _ := json.Marshal(s.until("problem", "problem").Item); !strings.Contains(string(e), "unavailable") {
		t.Errorf("%s", e)
	}
	store.away.Store(false)
	if e := s.until("problem", "problem"); !e.Removed {
		t.Errorf("%+v", e)
	}
}

// lostStore is a store that cannot be asked how late it is.
type lostStore struct {
	driver.Store
	away atomic.Bool
}

func (s *lostStore) Now(ctx context.Context) (time.Time, error) {
	if s.away.Load() {
		return time.Time{}, fmt.Errorf("now: %w", redrive.ErrUnavailable)
	}
	return s.Store.Now(ctx)
}
