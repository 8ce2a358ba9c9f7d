package daemon_test

import (
	"net/http"
	"testing"

	"github.com/redrive/redrive/internal/wire"
)

// A pause holds in every daemon of the store and after a restart, until it is resumed
// in any of them.
func TestPausesAreKept(t *testing.T) {
	store := newStore(t)
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	yaml := `queues: {sms: {deliver: {url: "https://example.com/x"}}}`
	first, second := start(t, parse(t, yaml), &keptOpen{store}), start(t, parse(t, yaml), &keptOpen{store})
	paused := func(d *rig) string {
		q := get[wire.Queue](d, 200, http.MethodGet, "/v1/queues/sms", "")
		if q.Engine == nil || len(q.Engine.Paused) == 0 {
			return ""
		}
		return q.Engine.Paused[0].Reason
	}
	get[wire.Queue](first, 200, http.MethodPost, "/v1/queues/sms/pause", `{"reason":"it is moved"}`)
	if paused(first) != "it is moved" {
		t.Error("it is not paused at once where that was asked for")
	}
	first.eventually("the other daemon follows", func() bool { return paused(second) == "it is moved" })
	third := start(t, parse(t, yaml), &keptOpen{store})
	if paused(third) != "it is moved" {
		t.Error("a daemon that starts does not know the pause")
	}
	get[wire.Queue](third, 200, http.MethodPost, "/v1/queues/sms/resume", "{}")
	for _, d := range []*rig{first, second, third} {
		first.eventually("all go on", func() bool { return paused(d) == "" })
	}
	get[wire.Queue](first, 200, http.MethodPost, "/v1/queues/sms/pause", `{"reason":"for a moment","for":"1s"}`)
	first.eventually("it ends by itself", func() bool { return paused(first) == "" })
}
