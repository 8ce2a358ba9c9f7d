//go:build unix

package sqlite

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// modes returns the modes of all files in a folder that are not 0600.
func modes(t *testing.T, dir string) (open []string) {
	t.Helper()
	all, err := os.ReadDir(dir)
	noErr(t, err)
	for _, d := range all {
		info, err := d.Info()
		noErr(t, err)
		if info.Mode().Perm() != fileMode {
			open = append(open, d.Name()+" "+info.Mode().String())
		}
	}
	return open
}

// watched shows the modes of a backup's files while it is written out.
type watched func()

func (w watched) Write(b []byte) (int, error) {
	w()
	return len(b), nil
}

func TestFilesAreForTheirUserOnly(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0))
	dir := filepath.Join(t.TempDir(), "above", "data")
	access := func(s *Store) driver.Finding {
		list := s.Probe(t.Context())
		return list[slices.IndexFunc(list, func(f driver.Finding) bool { return f.Setting == "access" })]
	}
	s := open(t, dir)
	publish(t, s, message("q", "x"))
	equal(t, modes(t, dir), nil)
	equal(t, access(s).Level, driver.LevelOK)
	looks := 0
	noErr(t, s.Backup(t.Context(), watched(func() {
		made, err := filepath.Glob(filepath.Join(dir, "backup-*"))
		noErr(t, err)
		for _, b := range made {
			looks++
			equal(t, modes(t, b), nil)
		}
	})))
	if looks == 0 {
		t.Error("no backup was seen")
	}
	info, err := os.Stat(dir)
	noErr(t, err)
	equal(t, info.Mode().Perm(), 0o700)
	s.fail(redrive.ErrClosed) // so that the log stays
	s.abandon()

	all, err := os.ReadDir(dir)
	noErr(t, err)
	for _, d := range all {
		noErr(t, os.Chmod(filepath.Join(dir, d.Name()), 0o644))
	}
	s = open(t, dir)
	verify(t, s)
	equal(t, modes(t, dir), nil)
	noErr(t, os.Chmod(dir, 0o755))
	if f := access(s); f.Level != driver.LevelWarn || !strings.Contains(f.Hint, "chmod 0700 "+dir) {
		t.Errorf("it says %+v", f)
	}
}
