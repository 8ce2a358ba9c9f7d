package sqlite

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

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

// smallDisks are file systems of 64 MiB.
var smallDisks = map[string]func(t *testing.T, dir string) error{
	"tmpfs": func(_ *testing.T, dir string) error { return syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=64m") },
	"ext4": func(t *testing.T, dir string) error {
		image := filepath.Join(t.TempDir(), "image")
		if err := errors.Join(os.WriteFile(image, nil, 0o600), os.Truncate(image, 64<<20)); err != nil {
			return err
		}
		if out, err := exec.CommandContext(t.Context(), "mkfs.ext4", "-q", image).CombinedOutput(); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		out, err := exec.CommandContext(t.Context(), "mount", "-o", "loop", image, dir).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	},
}

// TestAFullDiskDrains: with the reserve, starts, drops, claims and settlements work on a disk that
// another program fills, and goes on to fill once the store says so, until the backlog is gone. Then messages are
// taken again.
func TestAFullDiskDrains(t *testing.T) {
	for name, mount := range smallDisks {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := mount(t, dir); err != nil {
				t.Skipf("needs the right to mount: %v", err)
			}
			t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
			data := filepath.Join(dir, "data")
			s := open(t, data)
			noErr(t, s.Full())
			accepted := 0
			flood := func(n int) (err error) {
				for i := 0; i < n && err == nil; i++ {
					batch := make([]redrive.Message, 50)
					for j := range batch {
						batch[j] = message("q", strings.Repeat("x", 2000))
					}
					if err = driver.FirstError(s.Publish(t.Context(), batch)); err == nil {
						accepted += len(batch)
					}
				}
				return err
			}
			noErr(t, flood(30))
			ballast := fillDisk(t, dir, "ballast")
			if err := flood(10_000); !errors.Is(err, redrive.ErrFull) {
				t.Fatal(err)
			}
			more := fillDisk(t, dir, "more")
			if !errors.Is(s.Full(), redrive.ErrFull) {
				t.Error("it is not said to be full")
			}
			_, free, _, err := room(dir)
			noErr(t, err)
			t.Logf("%d KiB are free, the reserve is there: %t", free>>10, s.reserve.held)
			noErr(t, s.Close()) // whose log has no room in the database
			s = open(t, data)
			verify(t, s)
			dropped, err := s.Update(t.Context(), driver.Selection{Query: &redrive.Query{Queue: "q"}}, driver.Change{Action: driver.ActDrop}, 100)
			noErr(t, err)
			accepted -= len(dropped)
			for round := 0; accepted > 0; round++ {
				ds := claimWith(t, s, driver.ClaimRequest{Queue: "q", Max: 50, Lease: time.Minute})
				if len(ds) == 0 {
					t.Fatalf("%d messages are lost", accepted)
				}
				accepted -= len(ds)
				for i := range ds {
					settle(t, s, ds[i], redrive.OutcomeDone)
				}
				if round%10 == 0 {
					noErr(t, s.Close())
					s = open(t, data)
					verify(t, s)
				}
			}
			noErr(t, errors.Join(os.Remove(ballast), os.Remove(more)))
			eventually(t, "messages to be taken again", func() bool { return s.Full() == nil })
			noErr(t, flood(1))
			verify(t, s)
		})
	}
}

// fillDisk takes all room that is left, and returns the file that has it.
func fillDisk(t *testing.T, dir, name string) string {
	t.Helper()
	f, err := os.Create(filepath.Join(dir, name))
	noErr(t, err)
	for size := 1 << 20; size > 0; size /= 2 {
		for err = nil; err == nil; {
			_, err = f.Write(make([]byte, size))
		}
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	_ = f.Close()
	return f.Name()
}
