package daemon_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/backend/memory"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/redistest"
	"github.com/redrive/redrive/internal/wire"
)

// askew counts wrong, and notes who reads everything.
type askew struct {
	driver.Store
	causes, done atomic.Int64 // what is added
	scans        atomic.Int64
}

func (s *askew) Causes(ctx context.Context, q redrive.Query) ([]driver.Cause, bool, error) {
	list, all, err := s.Store.Causes(ctx, q)
	for i := range list {
		list[i].Count += s.causes.Load()
	}
	return list, all, err
}

func (s *askew) Counts(ctx context.Context, queues ...string) ([]driver.Counts, error) {
	list, err := s.Store.Counts(ctx, queues...)
	for i := range list {
		list[i].Ledger.Done += s.done.Load()
	}
	return list, err
}

func (s *askew) Verify(ctx context.Context, queues ...string) ([]driver.Audit, error) {
	s.scans.Add(1)
	return s.Store.Verify(ctx, queues...)
}

// Without scan=true only counters are compared: the ledger with those of what is there.
func TestVerifyByCounters(t *testing.T) {
	s := &askew{Store: memory.New()}
	deadLetters(t, s, 3)
	d := start(t, parse(t, "queues: {sms: {}}"), s)
	look := func(path string) wire.Verified { return get[wire.Verified](d, 200, http.MethodGet, path, "") }
	if v := look("/v1/verify?queue=sms"); !v.Balanced || v.Queues[0].Dead != 3 || v.Queues[0].Ledger.Entered != 3 || s.scans.Load() != 0 {
		t.Errorf("%+v after %d scans", v, s.scans.Load())
	}
	s.causes.Store(1)
	if v := look("/v1/verify"); v.Balanced || len(v.Queues) != 1 || !strings.Contains(strings.Join(v.Queues[0].Problems, ""), "causes") {
		t.Errorf("%+v", v)
	}
	s.causes.Store(0)
	s.done.Store(2)
	if v := look("/v1/verify"); v.Balanced || v.Queues[0].Imbalance != -2 {
		t.Errorf("%+v", v)
	}
	if v := look("/v1/verify?scan=true"); !v.Balanced || s.scans.Load() != 1 {
		t.Errorf("%+v after %d scans", v, s.scans.Load())
	}
	d.refused(400, "invalid", http.MethodGet, "/v1/verify?scan=yes", "")
}

// What others trimmed is missed until somebody acknowledges it, for a reason that the audit log
// keeps; then a second loss is seen. No store gets advice that cannot work there.
func TestALossIsAcknowledged(t *testing.T) {
	r := redistest.Start(t, redistest.Options{})
	d := start(t, parse(t, fmt.Sprintf("{store: %q, queues: {sms: {}, mail: {}}, grace: 1ms}", r.URL())), nil)
	client := r.Client(t)
	lose := func() {
		t.Helper()
		for range 3 {
			if err := client.Do(t.Context(), "XADD", "{redrive}:sms", "*", "body", "x").Err(); err != nil {
				t.Fatal(err)
			}
		}
		if err := client.Do(t.Context(), "XTRIM", "{redrive}:sms", "MAXLEN", 1).Err(); err != nil {
			t.Fatal(err)
		}
		if v := get[wire.Verified](d, 200, http.MethodGet, "/v1/verify?queue=sms", ""); v.Balanced || v.Queues[0].Imbalance == 0 || !strings.Contains(v.Hint, "--acknowledge") {
			t.Errorf("%+v", v)
		}
		if v := get[wire.Verified](d, 200, http.MethodGet, "/v1/verify?scan=true", ""); v.Balanced || !strings.Contains(fmt.Sprint(v.Queues), "trimmed by another client") {
			t.Errorf("%+v", v)
		}
	}
	lose()
	for _, body := range []string{`{}`, `{"reason":""}`, `{"reason":"a\nb"}`} {
		d.refused(400, "invalid", http.MethodPost, "/v1/verify", body)
	}
	d.refused(404, "queue-not-found", http.MethodPost, "/v1/verify", `{"queue":"smss","reason":"x"}`)
	if v := get[wire.Verified](d, 200, http.MethodPost, "/v1/verify", `{"queue":"sms","reason":"OPS-12"}`); !v.Balanced || v.Queues[0].Ledger.Dropped != 2 || v.Hint != "" {
		t.Errorf("%+v", v)
	}
	lose()
	if v := get[wire.Verified](d, 200, http.MethodPost, "/v1/verify", `{"reason":"OPS-13"}`); !v.Balanced || v.Queues[1].Ledger.Dropped != 5 {
		t.Errorf("%+v", v)
	}
	log := get[wire.List[wire.AuditEntry]](d, 200, http.MethodGet, "/v1/audit", "")
	if len(log.Items) != 2 || log.Items[0].Note != "OPS-13" || log.Items[0].Count != 3 || log.Items[1].Queue != "sms" || log.Items[1].Outcome != "done" {
		t.Errorf("%+v", log.Items)
	}

	s := &askew{Store: memory.New()}
	deadLetters(t, s, 1)
	s.done.Store(1)
	d = start(t, parse(t, "queues: {sms: {}}"), s)
	d.refused(501, "unsupported", http.MethodPost, "/v1/verify", `{"reason":"x"}`)
	if v := get[wire.Verified](d, 200, http.MethodGet, "/v1/verify", ""); v.Balanced || strings.Contains(v.Hint, "--acknowledge") {
		t.Errorf("%+v", v)
	}
}
