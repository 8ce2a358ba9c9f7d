package sqlite

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	sqlite3 "modernc.org/sqlite/lib"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// displaced are the ways in which the files of an open store can leave their places.
// Each returns the folder in which what was acknowledged still is, or "".
var displaced = map[string]func(t *testing.T, dir string) string{
	"the folder is deleted": func(t *testing.T, dir string) string {
		noErr(t, os.RemoveAll(dir))
		return ""
	},
	"the folder is moved": func(t *testing.T, dir string) string {
		noErr(t, os.Rename(dir, dir+"-moved"))
		return dir + "-moved"
	},
	"a folder above is moved": func(t *testing.T, dir string) string {
		above := filepath.Dir(dir)
		noErr(t, os.Rename(above, above+"-moved"))
		return filepath.Join(above+"-moved", filepath.Base(dir))
	},
	"the folder is replaced by a copy": func(t *testing.T, dir string) string {
		noErr(t, os.CopyFS(dir+"-copy", os.DirFS(dir)), os.Rename(dir, dir+"-moved"), os.Rename(dir+"-copy", dir))
		return dir
	},
	"the database is deleted": func(t *testing.T, dir string) string {
		noErr(t, os.Remove(filepath.Join(dir, FileName)))
		return ""
	},
	"the log is deleted": func(t *testing.T, dir string) string {
		noErr(t, os.Remove(filepath.Join(dir, FileName+logSuffix)))
		return ""
	},
	"the log is replaced": func(t *testing.T, dir string) string {
		log := filepath.Join(dir, FileName+logSuffix)
		b, err := os.ReadFile(log)
		noErr(t, err, os.Remove(log), os.WriteFile(log, b, 0o600))
		return dir
	},
	"a file is in the place of the folder": func(t *testing.T, dir string) string {
		noErr(t, os.Rename(dir, dir+"-moved"), os.WriteFile(dir, nil, 0o600))
		return dir + "-moved"
	},
}

// eachDisplaced runs a test of a store of 50 messages, one of them leased, with each way
// of displacing it.
func eachDisplaced(t *testing.T, ways map[string]func(t *testing.T, dir string) string, test func(t *testing.T, s *Store, fatal <-chan error, displace func() string)) {
	for name, displace := range ways {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dir := filepath.Join(t.TempDir(), "above", "data")
				fatal := make(chan error, 1)
				s, err := Open(dir, OnFatal(func(err error) { fatal <- err }))
				noErr(t, err)
				defer func() { _ = s.Close() }()
				for range 50 {
					publish(t, s, message("q", "x"))
				}
				claimWith(t, s, driver.ClaimRequest{Queue: "q", Max: 1, Lease: time.Minute})
				test(t, s, fatal, func() string { return displace(t, dir) })
			})
		})
	}
}

// TestNothingIsAcknowledgedIntoFilesThatAreGone: the first publish after the files are
// gone fails, though no time passed, and what was acknowledged before is where they are.
func TestNothingIsAcknowledgedIntoFilesThatAreGone(t *testing.T) {
	eachDisplaced(t, displaced, func(t *testing.T, s *Store, fatal <-chan error, displace func() string) {
		left := displace()
		for range 3 {
			if err := driver.FirstError(s.Publish(t.Context(), []redrive.Message{message("q", "y")})); err == nil || errors.Is(err, redrive.ErrClosed) {
				t.Errorf("the publish ended with %v", err)
			}
		}
		if err := <-fatal; !strings.Contains(err.Error(), s.dir) || !strings.Contains(err.Error(), "restore a backup") {
			t.Errorf("it said %v", err)
		}
		if _, err := s.Now(t.Context()); err == nil {
			t.Error("it is ready")
		}
		before := contents(t, left)
		noErr(t, s.Close())
		equal(t, contents(t, left), before)
		if left == "" {
			return
		}
		s = open(t, left)
		verify(t, s)
		c, err := s.Counts(t.Context(), "q")
		noErr(t, err)
		if n := c[0].AllWaiting(); n < 50 { // those that were refused may be there
			t.Errorf("%d of 50 messages are there", n)
		}
	})
}

// contents is what a folder's database and log hold; the rest is of one process.
func contents(t *testing.T, dir string) string {
	t.Helper()
	var all bytes.Buffer
	for _, name := range []string{FileName, FileName + logSuffix} {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if dir != "" {
			noErr(t, err)
		}
		all.Write(b)
	}
	return all.String()
}

// TestAnIdleStoreFindsItsFilesGone within a second, and then rests.
func TestAnIdleStoreFindsItsFilesGone(t *testing.T) {
	eachDisplaced(t, displaced, func(t *testing.T, s *Store, fatal <-chan error, displace func() string) {
		<-time.After(10*time.Second + anchorEvery/2)
		displace()
		start := time.Now()
		if err := <-fatal; !strings.Contains(err.Error(), s.dir) {
			t.Errorf("it said %v", err)
		}
		if took := time.Since(start); took > anchorEvery {
			t.Errorf("it took %s", took)
		}
		if _, err := s.Now(t.Context()); err == nil {
			t.Error("it is ready")
		}
		<-time.After(3 * time.Hour) // the lease runs out: the time of the bubble stands still if the writer spins
	})
}

// TestOtherWorkLeavesTheFilesInTheirPlaces: backups, checks from outside, readers, a log
// that is cut and a file that shrinks alarm nobody.
func TestOtherWorkLeavesTheFilesInTheirPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, t.TempDir())
		body := strings.Repeat("x", 2000)
		for range 4 {
			msgs := make([]redrive.Message, 500)
			for i := range msgs {
				msgs[i] = message("q", body)
			}
			publish(t, s, msgs...)
			var copied bytes.Buffer
			noErr(t, s.Backup(t.Context(), &copied))
			if _, err := Check(t.Context(), s.dir, nil); !errors.Is(err, redrive.ErrInUse) {
				t.Error(err)
			}
			if _, err := Open(s.dir); !errors.Is(err, redrive.ErrInUse) {
				t.Error(err)
			}
			verify(t, s)
			<-time.After(5 * time.Second) // the log is cut meanwhile
			equal(t, size(t, s, logSuffix), 0)
			for ds := claimAll(t, s, "q"); len(ds) > 0; ds = claimAll(t, s, "q") {
				for i := range ds {
					settle(t, s, ds[i], redrive.OutcomeDone)
				}
			}
			<-time.After(5 * time.Second)
		}
		verify(t, s)
	})
}

// TestAFailedStoreIsNotWritten: what a store that is idle, or ends, would move from the
// log into the file stays where it is.
func TestAFailedStoreIsNotWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		s, err := Open(dir, OnFatal(func(error) {}))
		noErr(t, err)
		publish(t, s, message("q", "good"))
		if err := s.do(t.Context(), 1, func(*tx) error { return &sqlError{code: sqlite3.SQLITE_IOERR_FSYNC, text: "disk I/O error"} }); err == nil {
			t.Error("the call succeeded")
		}
		before := contents(t, dir)
		<-time.After(10 * time.Second)
		equal(t, contents(t, dir), before)
		noErr(t, s.Close())
		equal(t, contents(t, dir), before)
		s = open(t, dir)
		verify(t, s)
		equal(t, bodies(claimAll(t, s, "q")), []string{"good"})
	})
}

// TestARelativeFolder is found again when the process changes its working folder.
func TestARelativeFolder(t *testing.T) {
	t.Chdir(t.TempDir())
	s := open(t, "data")
	publish(t, s, message("q", "a"))
	t.Chdir(t.TempDir())
	publish(t, s, message("q", "b"))
	verify(t, s)
	equal(t, bodies(claimAll(t, s, "q")), []string{"a", "b"})
}
