package daemon_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/redrive/redrive/internal/wire"
)

// A target's path and query may be secrets: nobody sees them but who may see the whole
// configuration, also not where the target repeats them.
func TestOfATargetSchemeAndHostAreShown(t *testing.T) {
	const secret = "T0PSECRETT0PSECRET"
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusUnprocessableEntity)
		fmt.Fprintf(w, "%s is not here, nor %s or http://%s%s", r.URL.Path, strings.Split(r.URL.Path, "/")[2], r.Host, r.URL)
	}))
	defer target.Close()
	at := target.URL + "/services/" + secret + "?key=" + secret
	d := start(t, parse(t, fmt.Sprintf("queues: {q: {deliver: {url: %q, allow_private: true}}, g: {deliver: {url: %[1]q, allow_private: true}, guard: {}, policy: {max_attempts: 1}}}", at)), newStore(t))
	for _, queue := range []string{"q", "g"} {
		get[wire.Accepted](d, 202, http.MethodPost, "/v1/queues/"+queue+"/messages", "x", "redrive-id", "m")
		d.eventually("it is dead", func() bool { return get[wire.Queue](d, 200, http.MethodGet, "/v1/queues/"+queue, "").Dead == 1 })
		if q := get[wire.Queue](d, 200, http.MethodGet, "/v1/queues/"+queue, ""); q.Deliver != target.URL {
			t.Errorf("it delivers to %s", q.Deliver)
		}
	}
	d.send(http.MethodPost, "/v1/call/g", "x")
	for _, path := range []string{"/v1/queues", "/v1/queues/q", "/v1/queues/q/dead-letters/m", "/v1/queues/g/dead-letters/m", "/v1/dead-letters", "/v1/causes", "/v1/guards", "/v1/guards/g", "/metrics", "/v1/queues/q/processing"} {
		if _, b := d.send(http.MethodGet, path, ""); strings.Contains(string(b), secret) {
			t.Errorf("%s: %s", path, b)
		}
	}
	if strings.Contains(d.log.String(), secret) {
		t.Error("the log shows it")
	}
	if _, b := d.send(http.MethodGet, "/v1/config", ""); !strings.Contains(string(b), secret) {
		t.Error("an administrator does not see it")
	}
}
