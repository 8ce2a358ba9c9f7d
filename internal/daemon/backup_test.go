package daemon_test

import (
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/backend/sqlite"
)

// A backup that was taken from a running daemon opens as a store and holds what was
// accepted before.
func TestBackupOfARunningDaemon(t *testing.T) {
	d := start(t, parse(t, "queues:\n  hooks: {}\n"), newStore(t))
	if resp, answer := d.send(http.MethodPost, "/v1/queues/hooks/messages", "precious", "Redrive-Id", "m-1"); resp.StatusCode != http.StatusAccepted {
		t.Fatalf("%d %s", resp.StatusCode, answer)
	}
	resp, copied := d.send(http.MethodGet, "/v1/backup", "")
	if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != "application/octet-stream" {
		t.Fatalf("%d %s", resp.StatusCode, copied)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, sqlite.FileName), copied, 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := sqlite.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	found, err := s.Get(t.Context(), []redrive.Ref{{Queue: "hooks", ID: "m-1"}})
	if err != nil || found[0] == nil || string(found[0].Body) != "precious" {
		t.Fatalf("the copy holds %v, %v", found, err)
	}
}
