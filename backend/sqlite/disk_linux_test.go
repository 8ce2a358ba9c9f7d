package sqlite

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// TestRealDiskFull fills a small file system: the store refuses what needs room,
// loses nothing, and goes on by itself when there is room again.
func TestRealDiskFull(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=6m"); err != nil {
		t.Skipf("needs the right to mount: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	ballast := filepath.Join(dir, "ballast")
	noErr(t, os.WriteFile(ballast, make([]byte, 2<<20), 0o600))
	s := open(t, dir)
	accepted := map[string]bool{}
	flood := func() (err error) {
		for range 10_000 {
			m := []redrive.Message{message("q", strings.Repeat("x", 5000))}
			if err = driver.FirstError(s.Publish(t.Context(), m)); err != nil {
				return err
			}
			accepted[m[0].ID] = true
		}
		return nil
	}
	if err := flood(); !errors.Is(err, redrive.ErrFull) {
		t.Fatal(err)
	}
	for range 3 {
		if err := driver.FirstError(s.Publish(t.Context(), []redrive.Message{message("q", strings.Repeat("y", 50_000))})); !errors.Is(err, redrive.ErrFull) {
			t.Fatal(err)
		}
	}
	noErr(t, os.Remove(ballast))
	publish(t, s, message("other", "z"))
	verify(t, s)
	if err := flood(); !errors.Is(err, redrive.ErrFull) {
		t.Fatal(err)
	}
	s.abandon()
	s = open(t, dir)
	verify(t, s)
	page, err := s.Find(t.Context(), redrive.Query{Queue: "q", Limit: redrive.MaxPage})
	noErr(t, err)
	for i := range page.Entries {
		delete(accepted, page.Entries[i].ID)
	}
	equal(t, len(accepted), 0)
}
