package daemon_test

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/backend/memory"
	"github.com/redrive/redrive/driver"
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
