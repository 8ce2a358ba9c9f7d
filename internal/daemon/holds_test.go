package daemon_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/internal/wire"
)

// held returns what holds a queue, of one sort.
func (d *rig) held(queue, what string) (all []wire.Hold) {
	d.t.Helper()
	list := get[wire.List[wire.Queue]](d, 200, http.MethodGet, "/v1/queues", "")
	i := slices.IndexFunc(list.Items, func(q wire.Queue) bool { return q.Queue == queue })
	if i < 0 {
		d.t.Fatalf("there is no queue %s", queue)
	}
	for _, h := range list.Items[i].HeldBy {
		if h.What == what {
			all = append(all, h)
		}
	}
	return all
}

// TestWhatHoldsAQueue: who paused it and when, also after a restart; its breaker with the next
// probe; its rate; keys behind a dead one; that nobody consumes it.
func TestWhatHoldsAQueue(t *testing.T) {
	store := newStore(t)
	defer store.Close()
	broken := newReceiver(t, func(string) int { return http.StatusServiceUnavailable })
	yaml := fmt.Sprintf(`
tokens: [{name: olga, hash: %[2]q}]
queues:
  paused: {deliver: {url: %[1]q, allow_private: true}}
  broken: {deliver: {url: %[1]q, allow_private: true}, breaker: {min_attempts: 2, min_messages: 2}, policy: {max_attempts: 99, backoff: {base: 1ms, max: 1ms}}}
  slow: {deliver: {url: %[1]q, allow_private: true, rate: 1/h}}
  nobody: {}
  keys: {order: key, deliver: {url: %[1]q, allow_private: true}, policy: {max_attempts: 1}}
`, broken.URL, hash("olga"))
	d := start(t, parse(t, yaml), &keptOpen{store})
	d.token = "olga"
	post := func(queue string, n int, headers ...string) {
		for range n {
			get[wire.Accepted](d, 202, http.MethodPost, "/v1/queues/"+queue+"/messages", "x", headers...)
		}
	}
	get[wire.Queue](d, 200, http.MethodPost, "/v1/queues/paused/pause", `{"reason":"it is moved"}`)
	paused := d.held("paused", wire.HoldPause)
	if len(paused) != 1 || paused[0].By != "olga" || paused[0].Detail != "it is moved" || paused[0].Since == nil || paused[0].Until != nil || paused[0].Stops != wire.StopsDelivery {
		t.Fatalf("%+v", paused)
	}
	post("broken", 20)
	d.eventually("the breaker", func() bool {
		h := d.held("broken", wire.HoldBreaker)
		return len(h) == 1 && h[0].Since != nil && h[0].Target == broken.URL && strings.Contains(h[0].Detail, "failed")
	})
	post("slow", 5)
	d.eventually("the rate", func() bool {
		h := d.held("slow", wire.HoldRate)
		return len(h) == 1 && h[0].Since != nil && h[0].Until != nil
	})
	post("nobody", 1)
	d.eventually("that nobody consumes it", func() bool { h := d.held("nobody", wire.HoldNobody); return len(h) == 1 && h[0].Since != nil })
	post("keys", 3, "redrive-key", "k")
	d.eventually("keys", func() bool {
		h := d.held("keys", wire.HoldKeys)
		return len(h) == 1 && strings.HasPrefix(h[0].Detail, "2 ")
	})
	d.shutdown()
	again := start(t, parse(t, yaml), &keptOpen{store})
	again.token = d.token
	if h := again.held("paused", wire.HoldPause); len(h) != 1 || h[0].By != "olga" || !h[0].Since.Equal(*paused[0].Since) {
		t.Errorf("after a restart: %+v, before %+v", h, paused[0])
	}
	get[wire.Queue](again, 200, http.MethodPost, "/v1/queues/paused/resume", "")
	if h := again.held("paused", wire.HoldPause); len(h) != 0 {
		t.Errorf("once it is resumed: %+v", h)
	}
	if counts, err := store.Counts(t.Context(), "keys"); err != nil || counts[0].Dead[redrive.ReasonExhausted] != 1 {
		t.Errorf("%+v, %v", counts, err)
	}
}
