package daemon_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/redrive/redrive/internal/pgtest"
)

// The metrics page tells of the pool and the statements of a store in a database
// server.
func TestMetricsOfAStoreInPostgreSQL(t *testing.T) {
	pg := pgtest.Start(t, nil)
	d := start(t, parse(t, "{store: \""+pg.URL()+"\", queues: {sms: {}}}"), nil)
	if resp, b := d.send(http.MethodPost, "/v1/queues/sms/messages", "x"); resp.StatusCode != http.StatusAccepted {
		t.Fatalf("%d %s", resp.StatusCode, b)
	}
	_, page := d.send(http.MethodGet, "/metrics", "")
	for _, want := range []string{
		"\nredrive_store_connections_max ", "\nredrive_store_connections{state=\"idle\"} ", "\nredrive_store_connection_waits_total ",
		"\nredrive_store_statement_duration_seconds_count{statement=\"publish\"} ", "\nredrive_store_up 1\n",
	} {
		if !strings.Contains(string(page), want) {
			t.Errorf("metrics lack %q:\n%s", want, page)
		}
	}
}
