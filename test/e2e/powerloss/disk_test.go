package powerloss_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/redrive/redrive/test/e2e/powerloss"
)

func cut(t *testing.T, d *powerloss.Disk, mode powerloss.Mode) {
	t.Helper()
	d.Off()
	if err := d.On(mode); err != nil {
		t.Fatal(err)
	}
}

// write creates or extends a file; sync and syncDir say what is made durable.
func write(t *testing.T, name string, data []byte, sync, syncDir bool) {
	t.Helper()
	f, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write(data); err != nil {
		t.Fatal(err)
	}
	if sync {
		if err := f.Sync(); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if syncDir {
		syncDirectory(t, filepath.Dir(name))
	}
}

func syncDirectory(t *testing.T, dir string) {
	t.Helper()
	f, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
}

func TestWhatWasSyncedStays(t *testing.T) {
	for _, mode := range []powerloss.Mode{powerloss.DropAll, powerloss.DropHalf} {
		d, dir := powerloss.Mount(t, 1)
		name, data := filepath.Join(dir, "a"), bytes.Repeat([]byte("redrive "), 5000)
		write(t, name, data, true, true)
		cut(t, d, mode)
		if got, err := os.ReadFile(name); err != nil || !bytes.Equal(got, data) {
			t.Errorf("mode %d: %d of %d bytes are there, %v", mode, len(got), len(data), err)
		}
	}
}

func TestWhatWasNotSyncedIsGone(t *testing.T) {
	d, dir := powerloss.Mount(t, 1)
	name := filepath.Join(dir, "a")
	write(t, name, []byte("kept"), true, true)
	write(t, name, []byte(" lost"), false, false)
	cut(t, d, powerloss.DropAll)
	if got, err := os.ReadFile(name); err != nil || string(got) != "kept" {
		t.Errorf("there is %q, %v", got, err)
	}
}

func TestAFileWithoutItsNameIsGone(t *testing.T) {
	d, dir := powerloss.Mount(t, 1)
	name := filepath.Join(dir, "a")
	write(t, name, []byte("synced, but not in its directory"), true, false)
	cut(t, d, powerloss.DropAll)
	if _, err := os.Stat(name); !os.IsNotExist(err) {
		t.Errorf("the file is there: %v", err)
	}
}

func TestRenameIsAtomic(t *testing.T) {
	for seed := range uint64(10) {
		d, dir := powerloss.Mount(t, seed)
		old, now := filepath.Join(dir, "old"), filepath.Join(dir, "new")
		write(t, old, []byte("x"), true, true)
		if err := os.Rename(old, now); err != nil {
			t.Fatal(err)
		}
		cut(t, d, powerloss.DropHalf)
		_, errOld := os.Stat(old)
		_, errNew := os.Stat(now)
		if (errOld == nil) == (errNew == nil) {
			t.Errorf("seed %d: old %v, new %v", seed, errOld, errNew)
		}
	}
}

func TestAHalfIsNeitherAllNorNothing(t *testing.T) {
	d, dir := powerloss.Mount(t, 7)
	name := filepath.Join(dir, "a")
	const pages = 64
	write(t, name, make([]byte, pages*4096), true, true)
	f, err := os.OpenFile(name, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write(bytes.Repeat([]byte{1}, pages*4096)); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	cut(t, d, powerloss.DropHalf)
	got, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	kept := bytes.Count(got, []byte{1}) / 4096
	if len(got) != pages*4096 || kept < pages/4 || kept > pages*3/4 {
		t.Errorf("%d of %d pages were kept, the file has %d bytes", kept, pages, len(got))
	}
}

func TestNothingWorksWithoutPower(t *testing.T) {
	d, dir := powerloss.Mount(t, 1)
	f, err := os.Create(filepath.Join(dir, "a"))
	if err != nil {
		t.Fatal(err)
	}
	d.Off()
	if _, err := f.Write([]byte("x")); err == nil {
		t.Error("a write succeeded")
	}
	if err := f.Sync(); err == nil {
		t.Error("a sync succeeded")
	}
	_ = f.Close() // it may fail, there is no power
	if err := d.On(powerloss.DropAll); err != nil {
		t.Fatal(err)
	}
}

func TestAFullDiskTakesNothingMore(t *testing.T) {
	d, dir := powerloss.Mount(t, 1)
	name := filepath.Join(dir, "a")
	write(t, name, make([]byte, 100), true, true)
	d.Full(true)
	f, err := os.OpenFile(name, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt([]byte("what is there may change"), 0); err != nil {
		t.Error(err)
	}
	if _, err := f.WriteAt([]byte("x"), 100); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("a file grew: %v", err)
	}
	if err := f.Truncate(200); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("a file grew: %v", err)
	}
	if err := os.Mkdir(filepath.Join(dir, "b"), 0o700); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("a folder was made: %v", err)
	}
	d.Full(false)
	if _, err := f.WriteAt([]byte("x"), 100); err != nil {
		t.Error(err)
	}
}
