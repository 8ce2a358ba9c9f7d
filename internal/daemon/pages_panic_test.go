package daemon_test

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/backend/memory"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/wire"
)

// panickyStore panics in the calls that a test names.
type panickyStore struct {
	driver.Store
	in atomic.Value
}

func (s *panickyStore) Unwrap() any { return s.Store }

// enter panics in the call that is named.
func (s *panickyStore) enter(call string) {
	if s.in.Load() == call {
		panic("the store's " + call)
	}
}

func (s *panickyStore) Get(ctx context.Context, refs []redrive.Ref) ([]*redrive.Entry, error) {
	if ctx.Value(http.ServerContextKey) != nil {
		s.enter("Get")
	}
	return s.Store.Get(ctx, refs)
}

func (s *panickyStore) Find(ctx context.Context, q redrive.Query) (driver.Page, error) {
	if q.Limit == redrive.MaxPage && q.Body != "" {
		s.enter("Find")
	}
	return s.Store.Find(ctx, q)
}

func (s *panickyStore) Counts(ctx context.Context, queues ...string) ([]driver.Counts, error) {
	if ctx.Value(http.ServerContextKey) != nil {
		s.enter("Counts")
	}
	return s.Store.Counts(ctx, queues...)
}

// A panic behind a page ends neither the daemon nor, if the page can do without what was asked for, the
// page; else the page says so. The log says where, once.
func TestPanicsBehindPages(t *testing.T) {
	s := &panickyStore{Store: memory.New()}
	s.in.Store("")
	scene(t, s, time.Now())
	d := start(t, parse(t, pagesConfig), s)
	b := newBrowser(t, d.base, nil)
	panics := func() int { return strings.Count(d.log.String(), `msg="page panicked"`) }

	s.in.Store("Get") // of a verdict, in a goroutine, and of a message
	if page := b.page("/ui/causes"); !strings.Contains(page, "charge") && !strings.Contains(page, "orders") {
		t.Errorf("causes: %s", page)
	}
	if panics() == 0 {
		t.Fatal("no verdict panicked")
	}
	before := panics()
	resp, page := b.open(http.MethodGet, "/ui/m/orders/a-0007", nil)
	if resp.StatusCode != http.StatusInternalServerError || !strings.Contains(page, "An internal error") || !strings.Contains(page, "<html") {
		t.Errorf("%d: %s", resp.StatusCode, page)
	}
	if log := d.log.String(); panics() != before+1 || strings.Contains(log, "page failed") || !strings.Contains(log, "runtime/debug.Stack") {
		t.Errorf("%d panics after %d: %s", panics(), before, log)
	}

	s.in.Store("Counts") // of the ledger's check
	if page := b.page("/ui/ledger"); !strings.Contains(page, "The ledger could not be checked") {
		t.Errorf("ledger: %s", page)
	}

	s.in.Store("Find") // of a count that goes on
	many(t, s, "idle", redrive.Examined+1)
	id := get[wire.Count](d, http.StatusAccepted, http.MethodPost, "/v1/counts", `{"filter": {"queue": "idle", "body": "unlike"}}`).ID
	d.eventually("the count fails", func() bool {
		return get[wire.Count](d, http.StatusOK, http.MethodGet, "/v1/counts/"+id, "").State == wire.CountFailed
	})

	s.in.Store("")
	b.page("/ui/")
	b.page("/ui/m/orders/a-0007")
}
