package daemon_test

import (
	"context"
	"errors"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/wire"
)

// farStore is a store on a server that goes away for publishers.
type farStore struct {
	driver.Store
	away atomic.Bool
}

func (f *farStore) Publish(ctx context.Context, msgs []redrive.Message) []error {
	if f.away.Load() {
		return slices.Repeat([]error{errors.New("dial tcp: connection refused")}, len(msgs))
	}
	return f.Store.Publish(ctx, msgs)
}

// While the store is away, the spool tells a repeated publish by what the masks leave, too.
func TestTheSpoolTellsNothingOfWhatIsMasked(t *testing.T) {
	store := &farStore{Store: newStore(t)}
	d := start(t, parse(t, "store: postgres://localhost/x\nqueues: {cards: {mask: [$..pin]}}\nspool: {dir: "+filepath.Join(t.TempDir(), "spool")+"}"), store)
	store.away.Store(true)
	const at = "/v1/queues/cards/messages"
	first := get[wire.Accepted](d, 202, http.MethodPost, at, `{"pin":1234}`, "redrive-id", "m")
	for _, guess := range []string{`{"pin":1234}`, `{"pin":4321}`} {
		if got := get[wire.Accepted](d, 202, http.MethodPost, at, guess, "redrive-id", "m"); got.ID != first.ID || !got.Duplicate {
			t.Errorf("%s: %+v", guess, got)
		}
	}
	d.refused(409, "conflict", http.MethodPost, at, `{"pin":1234,"shop":"b"}`, "redrive-id", "m")
}

func TestTheSpoolBridgesAnOutage(t *testing.T) {
	store := &farStore{Store: newStore(t)}
	cfg := parse(t, "store: postgres://localhost/x\nqueues: {sms: {}}\nspool: {dir: "+filepath.Join(t.TempDir(), "spool")+", messages: 3}")
	d := start(t, cfg, store)
	const at = "/v1/queues/sms/messages"
	get[wire.Accepted](d, 202, http.MethodPost, at, "1")
	store.away.Store(true)
	for _, body := range []string{"2", "3", "4"} {
		get[wire.Accepted](d, 202, http.MethodPost, at, body)
	}
	if p := d.refused(503, "store-unavailable", http.MethodPost, at, "5"); p.RetryAfter == 0 {
		t.Errorf("%+v", p)
	}
	if _, b := d.send(http.MethodGet, "/metrics", ""); !strings.Contains(string(b), "redrive_spool_messages 3") {
		t.Error("the metrics do not show the spool")
	}
	store.away.Store(false)
	d.eventually("it drains", func() bool {
		return get[wire.Queue](d, 200, http.MethodGet, "/v1/queues/sms", "").Waiting.All == 4
	})
	page, err := store.Find(t.Context(), redrive.Query{Queue: "sms", Bodies: true})
	if err != nil {
		t.Fatal(err)
	}
	var order []string
	for i := range page.Entries {
		order = append(order, string(page.Entries[i].Body))
	}
	if !slices.Equal(order, []string{"1", "2", "3", "4"}) {
		t.Errorf("%v", order)
	}
}
