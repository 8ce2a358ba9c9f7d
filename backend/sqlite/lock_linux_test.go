package sqlite

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redrive/redrive"
)

// held starts another process that holds the store of a folder, and returns how to end it.
func held(t *testing.T, dir string) (end func()) {
	t.Helper()
	other := holder.Command(t, dir)
	in, err := other.StdinPipe()
	noErr(t, err)
	out, err := other.StdoutPipe()
	noErr(t, err, other.Start())
	line := make([]byte, 64)
	n, err := out.Read(line)
	noErr(t, err)
	equal(t, strings.TrimSpace(string(line[:n])), "open")
	return func() { endHeld(t, other, in) }
}

func endHeld(t *testing.T, other *exec.Cmd, in io.Closer) {
	t.Helper()
	noErr(t, in.Close(), other.Wait())
}

// ways lead to the store of a folder although its lock file is free.
var ways = map[string]func(t *testing.T, dir string) string{
	"the lock is deleted": func(t *testing.T, dir string) string {
		noErr(t, os.Remove(filepath.Join(dir, lockName)))
		return dir
	},
	"the lock is replaced": func(t *testing.T, dir string) string {
		lock := filepath.Join(dir, lockName)
		noErr(t, os.Remove(lock), os.WriteFile(lock, nil, 0o600))
		return dir
	},
	"the lock is deleted, by a link to the folder": func(t *testing.T, dir string) string {
		link := filepath.Join(t.TempDir(), "link")
		noErr(t, os.Remove(filepath.Join(dir, lockName)), os.Symlink(dir, link))
		return link
	},
	"another name of the file": func(t *testing.T, dir string) string {
		other := t.TempDir()
		noErr(t, os.Link(filepath.Join(dir, FileName), filepath.Join(other, FileName)))
		return other
	},
}

// refusedAll fails unless whatever opens the store is refused.
func refusedAll(t *testing.T, dir string) {
	t.Helper()
	_, opened := Open(dir)
	_, checked := Check(t.Context(), dir, nil)
	_, salvaged := Salvage(t.Context(), dir, filepath.Join(t.TempDir(), "new"), nil)
	for what, err := range map[string]error{"open": opened, "check": checked, "salvage": salvaged} {
		if !errors.Is(err, redrive.ErrInUse) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestOneProcessWithoutItsLockFile(t *testing.T) {
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			end := held(t, dir)
			refusedAll(t, way(t, dir))
			end()
			verify(t, open(t, dir))
		})
	}
}

// TestOneStoreAProcessWithoutItsLockFile: the second is refused without the loss of what
// SQLite locked for the first.
func TestOneStoreAProcessWithoutItsLockFile(t *testing.T) {
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			s := open(t, dir)
			before := locksOf(t, dir)
			refusedAll(t, way(t, dir))
			equal(t, locksOf(t, dir), before)
			publish(t, s, message("q", "x"))
			verify(t, s)
		})
	}
}

// locksOf counts the locks that SQLite holds on the database.
func locksOf(t *testing.T, dir string) int {
	t.Helper()
	b, err := os.ReadFile("/proc/locks")
	noErr(t, err)
	info, err := os.Stat(filepath.Join(dir, FileName))
	noErr(t, err)
	n := 0
	for line := range strings.Lines(string(b)) {
		if strings.Contains(line, "POSIX") && strings.Contains(line, fmt.Sprintf(":%d ", info.Sys().(*syscall.Stat_t).Ino)) {
			n++
		}
	}
	if n == 0 {
		t.Fatal("SQLite has no lock")
	}
	return n
}

// TestALockFileIsMadeAgain within a second, and the store goes on.
func TestALockFileIsMadeAgain(t *testing.T) {
	for _, name := range []string{"the lock is deleted", "the lock is replaced"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dir := t.TempDir()
				s := open(t, dir)
				publish(t, s, message("q", "x"))
				<-time.After(10*time.Second + anchorEvery/2)
				ways[name](t, dir)
				<-time.After(anchorEvery)
				synctest.Wait()
				if _, err := lockFolder(dir); !errors.Is(err, redrive.ErrInUse) {
					t.Errorf("the lock file is free: %v", err)
				}
				publish(t, s, message("q", "y"))
				verify(t, s)
				<-time.After(time.Hour)
			})
		})
	}
}

// TestALinkedDatabaseIsRefused: its log is not beside the link.
func TestALinkedDatabaseIsRefused(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	noErr(t, open(t, dir).Close(), os.Symlink(filepath.Join(dir, FileName), filepath.Join(other, FileName)))
	var e *redrive.Error
	if _, err := Open(other); !errors.As(err, &e) || !strings.Contains(e.Hint, "folder") {
		t.Error(err)
	}
}
