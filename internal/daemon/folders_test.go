package daemon_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/internal/daemon"
	"github.com/redrive/redrive/internal/daemon/archive"
	"github.com/redrive/redrive/internal/daemon/config"
	"github.com/redrive/redrive/internal/wire"
)

// TestFoldersThatOthersCanEnterAreRefused unless they are allowed, which doctor shows.
func TestFoldersThatOthersCanEnterAreRefused(t *testing.T) {
	for name, yaml := range map[string]string{
		"store":   "store: sqlite:SHARED",
		"archive": "store: sqlite:OWN\narchive: SHARED",
		"spool":   "store: redis://127.0.0.1:1\nspool: {dir: SHARED}",
	} {
		shared := filepath.Join(t.TempDir(), "data")
		if err := os.Mkdir(shared, 0o755); err != nil {
			t.Fatal(err)
		}
		cfg := parse(t, strings.NewReplacer("SHARED", shared, "OWN", filepath.Join(t.TempDir(), "data")).Replace(yaml))
		_, err := daemon.New(cfg, daemon.Options{})
		if err == nil || !strings.Contains(err.Error(), shared) || !strings.Contains(err.Error(), "allow-shared-dir") {
			t.Errorf("%s: %v", name, err)
		}
		if name != "store" {
			continue
		}
		cfg.AllowSharedDir = true
		d := start(t, cfg, nil)
		said := false
		for _, f := range get[wire.List[wire.Finding]](d, 200, http.MethodGet, "/v1/probe", "").Items {
			said = said || f.Level == "warn" && strings.Contains(f.Promise, shared)
		}
		if !said {
			t.Error("doctor does not say it")
		}
	}
}

// TestArchivedFilesAreForTheirUserOnly also if something else put them there.
func TestArchivedFilesAreForTheirUserOnly(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	to, err := archive.Open(config.ArchiveBeside(data))
	if err != nil {
		t.Fatal(err)
	}
	if err := to.Archive(t.Context(), []redrive.Entry{{Message: redrive.Message{Queue: "q", ID: "1"}}}); err != nil {
		t.Fatal(err)
	}
	if err := to.Close(); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(to.Dir(), "*"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, f := range files {
		if err := os.Chmod(f, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	start(t, parse(t, "store: sqlite:"+data), nil)
	for _, f := range files {
		if info, err := os.Stat(f); err != nil || info.Mode().Perm() != 0o600 {
			t.Error(f, info, err)
		}
	}
}
