package daemon_test

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redrive/redrive/internal/servertest"
	"github.com/redrive/redrive/internal/wire"
)

// TestAFullDiskIsNotReady: whoever routes traffic goes elsewhere, and doctor says why; what
// waits is delivered, after which messages are taken when there is room.
func TestAFullDiskIsNotReady(t *testing.T) {
	mount := t.TempDir()
	if err := syscall.Mount("tmpfs", mount, "tmpfs", 0, "size=24m"); err != nil {
		t.Skipf("needs the right to mount: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(mount, syscall.MNT_DETACH) })
	target := newReceiver(t, func(string) int { return http.StatusTeapot })
	d := start(t, parse(t, "store: sqlite:"+filepath.Join(mount, "data")+"\nqueues: {hooks: {deliver: {url: \""+target.URL+"\", allow_private: true}, policy: {max_attempts: 1000, backoff: {type: fixed, interval: 100ms}}}, q: {}}"), nil)
	for range 5 {
		get[wire.Accepted](d, 202, http.MethodPost, "/v1/queues/hooks/messages", strings.Repeat("x", 1000))
	}
	ballast := filepath.Join(mount, "ballast")
	f, err := os.Create(ballast)
	for err == nil {
		_, err = f.Write(make([]byte, 4096))
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	_ = f.Close()
	for {
		resp, _ := d.send(http.MethodPost, "/v1/queues/q/messages", strings.Repeat("y", 100_000))
		if resp.StatusCode == http.StatusInsufficientStorage {
			break
		}
		if resp.StatusCode != http.StatusAccepted {
			t.Fatal(resp.Status)
		}
	}
	p := d.refused(503, "not-ready", http.MethodGet, "/readyz", "")
	if !strings.Contains(p.Detail, "full") || strings.Contains(p.Detail, mount) {
		t.Errorf("it says %q", p.Detail)
	}
	_, page := d.send(http.MethodGet, "/metrics", "")
	for _, line := range []string{"\nredrive_store_full 1\n", "\nredrive_store_disk_size_bytes 2.5165824e+07\n", "\nredrive_store_disk_free_bytes "} {
		if !strings.Contains(string(page), line) {
			t.Errorf("the metrics lack %q", line)
		}
	}
	said := false
	for _, f := range get[wire.List[wire.Finding]](d, 200, http.MethodGet, "/v1/probe", "").Items {
		said = said || f.Setting == "full disk" && f.Level == "warn"
	}
	if !said {
		t.Error("doctor does not say it")
	}
	// The target is mended while the disk is full: the backlog drains by itself.
	target.heal()
	servertest.Until(t, "the backlog drains while the disk is full", func() bool {
		q := get[wire.Queue](d, 200, http.MethodGet, "/v1/queues/hooks", "")
		return q.Ledger.Done == 5 && q.Waiting.All == 0 && q.Leased == 0
	})
	d.refused(503, "not-ready", http.MethodGet, "/readyz", "")
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(20 * time.Second); ; {
		resp, _ := d.send(http.MethodGet, "/readyz", "")
		if resp.StatusCode == http.StatusOK {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("it does not become ready again")
		}
	}
	get[wire.Accepted](d, 202, http.MethodPost, "/v1/queues/hooks/messages", "z")
}
