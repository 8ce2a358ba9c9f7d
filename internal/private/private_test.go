package private

import (
	"os"
	"path/filepath"
	"testing"
)

func TestTake(t *testing.T) {
	dir := t.TempDir()
	path, link := filepath.Join(dir, "file"), filepath.Join(dir, "link")
	if err := os.WriteFile(path, nil, 0o640); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		path string
		had  os.FileMode
	}{{link, 0}, {filepath.Join(dir, "none"), 0}, {dir, 0}, {path, 0o640}, {path, 0}} {
		if had, err := Take(c.path); had != c.had || err != nil {
			t.Errorf("%s: %04o, %v; want %04o", c.path, had, err, c.had)
		}
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != File || Shared(info) {
		t.Errorf("%v, %v", info.Mode(), err)
	}
}
