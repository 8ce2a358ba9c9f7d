package daemon_test

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/backend/sqlite"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/daemon"
	"github.com/redrive/redrive/internal/wire"
)

// TestAnAcceptedLossIsAudited: a daemon refuses a store whose log was cut, and says in the
// audit log what it went on without.
func TestAnAcceptedLossIsAudited(t *testing.T) {
	from, data := filepath.Join(t.TempDir(), "data"), filepath.Join(t.TempDir(), "data")
	store, err := sqlite.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = store.Close() }()
	for i := range 100 { // the position is noted after the first, the others make the log longer
		if err := driver.FirstError(store.Publish(context.Background(), []redrive.Message{{Queue: "q", Body: make([]byte, 1000+i)}})); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.CopyFS(data, os.DirFS(from)); err != nil { // as a kill leaves it
		t.Fatal(err)
	}
	if err := os.Chmod(data, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(filepath.Join(data, sqlite.FileName+"-wal"), 0); err != nil {
		t.Fatal(err)
	}
	cfg := parse(t, "store: sqlite:"+data)
	if _, err := daemon.New(cfg, daemon.Options{}); err == nil || !strings.Contains(err.Error(), "--accept-loss") {
		t.Fatalf("it was opened, or not refused plainly: %v", err)
	}
	opened, err := sqlite.Open(data, sqlite.AcceptLoss())
	if err != nil {
		t.Fatal(err)
	}
	d := start(t, cfg, opened)
	list := get[wire.List[wire.AuditEntry]](d, 200, http.MethodGet, "/v1/audit", "")
	if len(list.Items) != 1 || list.Items[0].Action != "accept loss" || !strings.Contains(list.Items[0].Note, "synced up to page") {
		t.Errorf("the audit log has %+v", list.Items)
	}
}
