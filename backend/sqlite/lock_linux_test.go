package sqlite

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
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

// locksOf counts the locks that SQLite holds on the database in this process. (/proc/locks skips some
// while other processes lock and unlock.)
func locksOf(t *testing.T, dir string) int {
	t.Helper()
	files, err := os.ReadDir("/proc/self/fd")
	noErr(t, err)
	n := 0
	for _, f := range files {
		if name, err := os.Readlink("/proc/self/fd/" + f.Name()); err != nil || name != filepath.Join(dir, FileName) {
			continue
		}
		info, err := os.ReadFile("/proc/self/fdinfo/" + f.Name())
		noErr(t, err)
		n += strings.Count(string(info), "lock:")
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
