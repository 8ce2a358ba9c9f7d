package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redrive/redrive/internal/daemon/config"
	"github.com/redrive/redrive/internal/servertest"
)

// A bundle has what helps, and nothing of what was planted: secrets of the configuration, bodies, headers, keys,
// failure texts, answers, notes, reasons, filters.
func TestABundleHasNoSecrets(t *testing.T) {
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusUnprocessableEntity)
		fmt.Fprintf(w, `{"error": "canary-answer", "message": "canary-answer of %s"}`, r.URL)
	}))
	defer target.Close()
	admin, adminID, adminHash := config.NewToken()
	reader, readerID, readerHash := config.NewToken()
	b := serving(t, fmt.Sprintf(`tokens:
  - {name: olga, id: %s, hash: "%s", scopes: [admin]}
  - {name: ron, id: %s, hash: "%s", scopes: [read]}
queues:
  hooks: {deliver: {url: "%s/canary-path?token=canary-query", allow_private: true, secret: whsec_Y2FuYXJ5LXNpZ25pbmcta2V5LWNhbmFyeQ==, headers: {x-api-key: canary-header}}}
  idle: {deliver: {url: "https://idle.example/canary-path"}}
alerts: {receivers: [{name: team, webhook: "https://alerts.example/canary-hook"}]}
`, adminID, adminHash, readerID, readerHash, target.URL))
	t.Setenv("REDRIVE_TOKEN", admin)
	b.expect(exitOK, "", "publish", "hooks", "canary-body", "--key", "canary-key", "--header", "x-customer=canary-customer")
	servertest.Until(t, "it is dead", func() bool {
		code, out, _ := b.run("dead", "list", "--queue", "hooks", "--json")
		return code == exitOK && strings.Contains(out, `"queue": "hooks"`)
	})
	b.expect(exitOK, "", "queues", "pause", "idle", "--reason", "canary-reason")
	b.expect(exitOK, "", "dead", "redrive", "--queue", "hooks", "--text", "canary-answer", "--why", "canary-why", "--yes")
	path := filepath.Join(t.TempDir(), "support.tar.gz")
	code, out, stderr := b.run("doctor", "--bundle", path)
	if code == exitUsage || !strings.Contains(stderr, "reading cpu.pprof") {
		t.Fatalf("%d %s %s", code, out, stderr)
	}
	files := unpacked(t, path)
	for _, name := range []string{"version.json", "doctor.json", "me.json", "probe.json", "config.json", "queues.json", "causes.json", "plans.json", "audit.json", "metrics.txt", "goroutines.txt", "heap.pprof", "trace.out", "cpu.pprof"} {
		if len(files[name]) == 0 {
			t.Errorf("%s is missing or empty; missing: %s", name, files["missing.txt"])
		}
	}
	for name, content := range files {
		for _, secret := range [][]byte{[]byte("canary"), []byte(admin), []byte(strings.TrimPrefix(adminHash, "sha256:"))} {
			if i := bytes.Index(content, secret); i >= 0 {
				t.Errorf("%s holds %q: ...%s...", name, secret, content[max(0, i-60):min(len(content), i+60)])
			}
		}
	}
	for name, says := range map[string]string{"queues.json": `"hooks"`, "causes.json": `"count": 1`, "plans.json": `"redrive"`, "audit.json": `"pause"`, "config.json": target.URL, "doctor.json": "dead letters", "goroutines.txt": "goroutine profile"} {
		if !bytes.Contains(files[name], []byte(says)) {
			t.Errorf("%s does not say %s:\n%.2000s", name, says, files[name])
		}
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info, err)
	}
	b.expect(exitFailed, "is there already", "doctor", "--bundle", path)

	// What a token may not see is named.
	t.Setenv("REDRIVE_TOKEN", reader)
	less := filepath.Join(t.TempDir(), "less.tar.gz")
	b.run("doctor", "--bundle", less)
	files = unpacked(t, less)
	if missing := string(files["missing.txt"]); !strings.Contains(missing, "config.json: ") || !strings.Contains(missing, "heap.pprof: ") || len(files["metrics.txt"]) == 0 {
		t.Errorf("missing.txt: %s", missing)
	}
}

// unpacked are the files of a bundle; profiles without their compression.
func unpacked(t *testing.T, path string) map[string][]byte {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	files := make(map[string][]byte)
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if err == io.EOF { //nolint:errorlint // archive/tar returns it bare
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if inner, err := gzip.NewReader(bytes.NewReader(content)); err == nil {
			if content, err = io.ReadAll(inner); err != nil {
				t.Fatal(err)
			}
		}
		name := strings.TrimPrefix(h.Name, "redrive-bundle/")
		files[name] = content
	}
	return files
}
