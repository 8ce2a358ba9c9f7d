package daemon_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/backend/memory"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/wire"
)

// gatedStore lets pages of searches that go on through one at a time.
type gatedStore struct {
	driver.Store
	gate chan struct{}
}

func (s *gatedStore) Unwrap() any { return s.Store }

func (s *gatedStore) Find(ctx context.Context, q redrive.Query) (driver.Page, error) {
	if (q.Body != "" || q.Kind != "") && q.Limit == redrive.MaxPage {
		select {
		case <-s.gate:
		case <-ctx.Done():
			return driver.Page{}, ctx.Err()
		}
	}
	return s.Store.Find(ctx, q)
}

// many puts dead letters into a queue, every tenth with a text in its body.
func many(t *testing.T, store driver.Store, queue string, n int) {
	t.Helper()
	died := time.Now().Add(-time.Minute)
	var put []redrive.Entry
	for i := range n {
		body := fmt.Sprintf(`{"n":%d}`, i)
		if i%10 == 9 {
			body = `{"needle":true}`
		}
		put = append(put, redrive.Entry{Message: redrive.Message{Queue: queue, ID: fmt.Sprint("m-", i), Body: []byte(body)}, State: redrive.StateDead, Reason: redrive.ReasonPermanent,
			DiedAt: died.Add(time.Duration(i) * time.Microsecond)})
		if len(put) == 1000 || i == n-1 {
			errs, err := store.Apply(t.Context(), driver.Batch{Put: put})
			if err != nil || driver.FirstError(errs) != nil {
				t.Fatal(err, errs)
			}
			put = nil
		}
	}
}

// A count that no counter answers goes on in the background to its exact end, and its result
// is there for whoever asks for the same.
func TestCountsInTheBackground(t *testing.T) {
	inStores(t, func(t *testing.T, store driver.Store) {
		const n = redrive.Examined + 5000
		many(t, store, "open", n)
		d := start(t, vaultConfig(t), store)
		d.token = "secret-admin"
		if c := get[wire.Count](d, 200, http.MethodPost, "/v1/counts", `{"filter":{"queue":"open","reason":"permanent"}}`); c.State != "done" || c.Count != n || c.EndedAt == nil {
			t.Errorf("by counters: %+v", c)
		}
		const filter = `{"filter":{"queue":"open","body":"needle"}}`
		c := get[wire.Count](d, 202, http.MethodPost, "/v1/counts", filter)
		if c.State != "running" || c.Total != n {
			t.Errorf("%+v", c)
		}
		d.eventually("the count ends", func() bool {
			c = get[wire.Count](d, 200, http.MethodGet, "/v1/counts/"+c.ID, "")
			return c.State != "running"
		})
		if c.State != "done" || c.Count != n/10 || c.Examined != n || c.EndedAt == nil {
			t.Errorf("%+v", c)
		}
		deadOf(t, store, "open", "later", "", func(e *redrive.Entry) { e.Body = []byte("needle") })
		if again := get[wire.Count](d, 200, http.MethodPost, "/v1/counts", filter); again != c && (again.ID != c.ID || again.Count != c.Count || !again.StartedAt.Equal(c.StartedAt)) {
			t.Errorf("it is counted again: %+v, %+v", c, again)
		}
		for token, want := range map[string]int{"secret-admin": 200, "secret-payload": 404, "secret-read": 404} {
			d.token = token // the text was looked for in what these may not see
			if resp, b := d.send(http.MethodGet, "/v1/counts/"+c.ID, ""); resp.StatusCode != want {
				t.Errorf("%s: %d %s", token, resp.StatusCode, b)
			}
		}
		d.refused(400, "invalid", http.MethodPost, "/v1/counts", `{"filter":{"state":"molten"}}`)
		d.refused(404, "not-found", http.MethodGet, "/v1/counts/running", "")
	})
}

// One count runs at a time, tells how far it is, and can be cancelled; one whose daemon ended
// is counted anew.
func TestCountsRunOneAtATimeAndAreCancelled(t *testing.T) {
	const filter = `{"filter":{"queue":"open","body":"needle"}}`
	memory := memory.New()
	many(t, memory, "open", redrive.Examined+5000)
	store := &gatedStore{Store: memory, gate: make(chan struct{})}
	d := start(t, vaultConfig(t), store)
	d.token = "secret-admin"
	c := get[wire.Count](d, 202, http.MethodPost, "/v1/counts", filter)
	if same := get[wire.Count](d, 202, http.MethodPost, "/v1/counts", filter); same.ID != c.ID {
		t.Errorf("the same is counted twice: %+v", same)
	}
	p := d.refused(409, "count-running", http.MethodPost, "/v1/counts", strings.Replace(filter, "needle", "another", 1))
	if !strings.Contains(p.Hint, c.ID) {
		t.Errorf("%+v", p)
	}
	if c = get[wire.Count](d, 200, http.MethodDelete, "/v1/counts/"+c.ID, ""); c.State != "cancelled" || c.EndedAt == nil {
		t.Errorf("%+v", c)
	}
	other := get[wire.Count](d, 202, http.MethodPost, "/v1/counts", strings.Replace(filter, "needle", "another", 1))
	get[wire.Count](d, 200, http.MethodDelete, "/v1/counts/"+other.ID, "")

	// As a daemon left it that was killed.
	stale := fmt.Sprintf(`{"id":%q,"filter":{"queue":"open","body":"needle"},"view":"","state":"running","updated_at":"2020-01-01T00:00:00Z"}`, c.ID)
	if _, err := memory.Apply(t.Context(), driver.Batch{Records: []driver.RecordWrite{{Space: "counts", Key: c.ID, Value: []byte(stale), Version: driver.AnyVersion}}}); err != nil {
		t.Fatal(err)
	}
	if c = get[wire.Count](d, 200, http.MethodGet, "/v1/counts/"+c.ID, ""); c.State != "failed" || c.Problem == "" {
		t.Errorf("%+v", c)
	}
	close(store.gate)
	c = get[wire.Count](d, 202, http.MethodPost, "/v1/counts", filter)
	d.eventually("the count ends", func() bool {
		c = get[wire.Count](d, 200, http.MethodGet, "/v1/counts/"+c.ID, "")
		return c.State == "done" && c.Count == (redrive.Examined+5000)/10
	})
}
