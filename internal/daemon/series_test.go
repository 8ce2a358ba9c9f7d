package daemon_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/redrive/redrive/internal/wire"
)

// What was published and delivered through the daemon shows in the minutes of its queue.
func TestSeriesOfAQueue(t *testing.T) {
	target := newReceiver(t, func(body string) int {
		if strings.Contains(body, "bad") {
			return http.StatusUnprocessableEntity
		}
		return http.StatusOK
	})
	d := start(t, parse(t, fmt.Sprintf("queues: {q: {deliver: {url: %q, allow_private: true}}}", target.URL)), newStore(t))
	for _, body := range []string{"a", "b", "bad"} {
		get[wire.Accepted](d, 202, http.MethodPost, "/v1/queues/q/messages", body, "redrive-id", body)
	}
	get[wire.Accepted](d, 202, http.MethodPost, "/v1/queues/q/messages", "a", "redrive-id", "a") // counts once
	var sum wire.Minute
	d.eventually("all have ended", func() bool {
		s := get[wire.Series](d, 200, http.MethodGet, "/v1/queues/q/series", "")
		if !s.Counted || s.Since.IsZero() || len(s.Minutes) == 0 {
			t.Fatalf("%+v", s)
		}
		sum = wire.Minute{}
		for _, m := range s.Minutes {
			sum.Published += m.Published
			sum.Delivered += m.Delivered
			sum.Failed += m.Failed
			sum.Dead += m.Dead
			sum.P95 = max(sum.P95, m.P95)
		}
		return sum.Delivered == 2 && sum.Dead == 1
	})
	if sum.Published != 3 || sum.Failed != 1 || sum.P95 <= 0 {
		t.Errorf("%+v", sum)
	}
	d.refused(http.StatusNotFound, "queue-not-found", http.MethodGet, "/v1/queues/none/series", "")
}
