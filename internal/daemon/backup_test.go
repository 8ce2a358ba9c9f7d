package daemon_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/backend/sqlite"
	"github.com/redrive/redrive/internal/servertest"
	"github.com/redrive/redrive/internal/wire"
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

// A backup that the daemon makes by itself under load opens as a store: a daemon on it has all that was
// accepted before the backup began, and its ledger balances.
func TestAKeptBackupIsRestored(t *testing.T) {
	data, dir := filepath.Join(t.TempDir(), "data"), filepath.Join(t.TempDir(), "backups")
	target := newReceiver(t, func(string) int { return http.StatusUnprocessableEntity })
	conf := func(data, more string) string {
		return fmt.Sprintf("{store: %q, queues: {hooks: {}, dead: {deliver: {url: %q, allow_private: true}}}%s}", "sqlite:"+data, target.URL, more)
	}
	before := make(map[string]bool)
	first := start(t, parse(t, conf(data, "")), nil)
	for i := range 300 {
		id := fmt.Sprintf("before-%d", i)
		get[wire.Accepted](first, 202, http.MethodPost, "/v1/queues/"+[]string{"hooks", "dead"}[i%2]+"/messages", strings.Repeat("x", 3000), "redrive-id", id)
		before[[]string{"hooks", "dead"}[i%2]+"/"+id] = true
	}
	first.shutdown()

	d := start(t, parse(t, conf(data, fmt.Sprintf(", backup: {every: 1h, keep: 2, dir: %q}", dir))), nil) // the first backup begins at once
	done := make(chan struct{})
	var load sync.WaitGroup
	load.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-done:
				return
			default:
			}
			d.send(http.MethodPost, "/v1/queues/hooks/messages", strings.Repeat("y", 3000), "redrive-id", fmt.Sprintf("during-%d", i))
		}
	})
	var made []string
	servertest.Until(t, "a backup is made", func() bool {
		made, _ = filepath.Glob(filepath.Join(dir, "redrive-*"))
		return len(made) == 1
	})
	close(done)
	load.Wait()
	probe := func(level string) (value string) {
		for _, f := range get[wire.List[wire.Finding]](d, 200, http.MethodGet, "/v1/probe", "").Items {
			if f.Setting == "backup" && f.Level == level {
				value = f.Value
			}
		}
		return value
	}
	if at, err := time.Parse(time.RFC3339, probe("ok")); err != nil || time.Since(at) > time.Hour {
		t.Errorf("doctor says %v, %v", at, err)
	}
	_, page := d.send(http.MethodGet, "/metrics", "")
	if text := string(page); !strings.Contains(text, "\nredrive_backup_failed 0\n") || !strings.Contains(text, "\nredrive_backup_newest_timestamp_seconds 1.") {
		t.Errorf("the metrics lack the backup:\n%s", text)
	}
	d.shutdown()

	restored := start(t, parse(t, conf(made[0], "")), nil)
	if v := get[wire.Verified](restored, 200, http.MethodGet, "/v1/verify?scan=true", ""); !v.Balanced {
		t.Errorf("%+v", v)
	}
	for ref := range before {
		queue, id, _ := strings.Cut(ref, "/")
		if resp, _ := restored.send(http.MethodGet, "/v1/queues/"+queue+"/messages/"+id, ""); resp.StatusCode != http.StatusOK {
			if resp, body := restored.send(http.MethodGet, "/v1/queues/"+queue+"/dead-letters/"+id, ""); resp.StatusCode != http.StatusOK {
				t.Errorf("%s is not in the backup: %s %s", ref, resp.Status, body)
			}
		}
	}
}
