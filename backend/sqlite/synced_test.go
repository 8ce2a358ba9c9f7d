package sqlite

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	sqlite3 "modernc.org/sqlite/lib"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// died returns a folder with the files of an open store as a kill of its process would leave
// them.
func died(t *testing.T, s *Store) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for _, name := range []string{FileName, FileName + logSuffix, syncedName} {
		b, err := os.ReadFile(filepath.Join(s.dir, name))
		noErr(t, err, os.WriteFile(filepath.Join(dir, name), b, fileMode))
	}
	return dir
}

// synced publishes 400 messages, after the last of which the position is noted, and more if
// late is not 0. The clock stands still, so that the log is not moved.
func synced(t *testing.T, late int) *Store {
	t.Helper()
	c := newClock()
	s := open(t, t.TempDir(), WithClock(c.now))
	one := func() { publish(t, s, message("q", strings.Repeat("x", 500))) }
	for range 399 {
		one()
	}
	c.advance(anchorEvery)
	one()
	for range max(late, 1) { // the first answer comes after the position was noted
		one()
	}
	if late == 0 {
		equal(t, int(s.synced.last.Entered), 400)
	}
	return s
}

// edit changes a file of a folder.
func edit(t *testing.T, dir, name string, change func(b []byte) []byte) {
	t.Helper()
	path := filepath.Join(dir, name)
	b, err := os.ReadFile(path)
	noErr(t, err, os.WriteFile(path, change(b), fileMode))
}

// cuts are the ways in which a log can lose what was synced to it.
var cuts = map[string]func(t *testing.T, dir string){
	"emptied": func(t *testing.T, dir string) {
		edit(t, dir, FileName+logSuffix, func([]byte) []byte { return nil })
	},
	"cut in half": func(t *testing.T, dir string) {
		edit(t, dir, FileName+logSuffix, func(b []byte) []byte { return b[:len(b)/2] })
	},
	"flipped in the middle": func(t *testing.T, dir string) {
		edit(t, dir, FileName+logSuffix, func(b []byte) []byte { b[len(b)/2] ^= 4; return b })
	},
	"flipped in its header": func(t *testing.T, dir string) {
		edit(t, dir, FileName+logSuffix, func(b []byte) []byte { b[17] ^= 4; return b })
	},
	"deleted": func(t *testing.T, dir string) {
		noErr(t, os.Remove(filepath.Join(dir, FileName+logSuffix)))
	},
	"replaced by an older one": func(t *testing.T, dir string) {
		other := died(t, open(t, t.TempDir()))
		noErr(t, os.Rename(filepath.Join(other, FileName+logSuffix), filepath.Join(dir, FileName+logSuffix)))
	},
}

// TestACutLogIsRefused: what is missing is said, nothing is changed, and --accept-loss goes on.
func TestACutLogIsRefused(t *testing.T) {
	s := synced(t, 0)
	for name, cut := range cuts {
		t.Run(name, func(t *testing.T) {
			dir := died(t, s)
			cut(t, dir)
			before, _ := os.ReadFile(filepath.Join(dir, FileName+logSuffix))
			for range 2 {
				var e *redrive.Error
				if _, err := Open(dir); !errors.Is(err, redrive.ErrCorrupt) || !errors.As(err, &e) || !strings.Contains(e.Hint, "--accept-loss") || !strings.Contains(err.Error(), "messages that entered") {
					t.Fatal(err)
				}
			}
			after, _ := os.ReadFile(filepath.Join(dir, FileName+logSuffix))
			equal(t, string(after), string(before))
			if r, err := Check(t.Context(), dir, nil); !errors.Is(err, redrive.ErrCorrupt) && (err != nil || len(r.Problems) != 1 || !strings.Contains(r.Problems[0], "was synced up to page")) {
				t.Error(r.Problems, err)
			}
			s, err := Open(dir, AcceptLoss())
			noErr(t, err)
			if n, what := s.Loss(); what == nil || n < 100 {
				t.Errorf("it says that %d are missing: %v", n, what)
			}
			publish(t, s, message("q", "more"))
			verify(t, s)
			noErr(t, s.Close())
			s = open(t, dir, AcceptLoss())
			noErr(t, s.loss)
			verify(t, s)
		})
	}
}

// TestWhatTheLedgerLacksIsCounted exactly where all of it was in the log.
func TestWhatTheLedgerLacksIsCounted(t *testing.T) {
	c := newClock()
	s := open(t, t.TempDir(), WithClock(c.now))
	publish(t, s, message("q", "in the database"))
	equal(t, s.between(t.Context(), func() error {
		if !s.moveLog(sqlite3.SQLITE_CHECKPOINT_TRUNCATE) {
			return errors.New("the log was not moved")
		}
		return nil
	}), nil)
	c.advance(anchorEvery)
	publish(t, s, message("q", "a"), message("q", "b"))
	publish(t, s, message("q", "not noted"))
	dir := died(t, s)
	noErr(t, os.Truncate(filepath.Join(dir, FileName+logSuffix), 0))
	if _, err := Open(dir); err == nil || !strings.Contains(err.Error(), "at least 2 messages that entered and 0 that left") {
		t.Error(err)
	}
}

// TestAWholeLogIsOpened, also without the record, or with one that is damaged.
func TestAWholeLogIsOpened(t *testing.T) {
	flip := func(places ...int) func(t *testing.T, dir string) {
		return func(t *testing.T, dir string) {
			edit(t, dir, syncedName, func(b []byte) []byte {
				for _, i := range places {
					b[i] ^= 4
				}
				return b
			})
		}
	}
	s := synced(t, 0)
	for name, change := range map[string]func(t *testing.T, dir string){
		"as it was":                func(*testing.T, string) {},
		"the record is gone":       func(t *testing.T, dir string) { noErr(t, os.Remove(filepath.Join(dir, syncedName))) },
		"the record is empty":      func(t *testing.T, dir string) { noErr(t, os.Truncate(filepath.Join(dir, syncedName), 0)) },
		"the record is cut":        func(t *testing.T, dir string) { noErr(t, os.Truncate(filepath.Join(dir, syncedName), 40)) },
		"one record is damaged":    flip(30),
		"the other is damaged":     flip(syncedSlot + 30),
		"both records are damaged": flip(30, syncedSlot+30),
	} {
		t.Run(name, func(t *testing.T) {
			dir := died(t, s)
			change(t, dir)
			s := open(t, dir)
			noErr(t, s.loss)
			verify(t, s)
			c, err := s.Counts(t.Context(), "q")
			noErr(t, err)
			equal(t, c[0].AllWaiting(), 401)
		})
	}
}

// TestTheLastSecondOfALogIsNotNoted: what was acknowledged after the last record can be cut
// without notice, as guarantees say.
func TestTheLastSecondOfALogIsNotNoted(t *testing.T) {
	s := synced(t, 50)
	dir := died(t, s)
	edit(t, dir, FileName+logSuffix, func(b []byte) []byte { return b[:len(b)-100_000] })
	s = open(t, dir)
	noErr(t, s.loss)
	verify(t, s)
}

// TestLogsThatAreBegunAnewAreWhole: at any moment between, with the record of then or with
// an older one, as a loss of power may leave it.
func TestLogsThatAreBegunAnewAreWhole(t *testing.T) {
	c := newClock()
	s := open(t, t.TempDir(), WithClock(c.now))
	body := strings.Repeat("x", 100_000)
	var older []byte
	begun := 0
	for salt := [2]uint32{}; begun < 4; {
		c.advance(anchorEvery)
		publish(t, s, message("q", body), message("q", body), message("q", body), message("q", body))
		publish(t, s, message("q", "y"))
		now := died(t, s)
		record, err := os.ReadFile(filepath.Join(now, syncedName))
		noErr(t, err)
		if p := s.synced.last; p.Salt != salt && p.Frames != 0 {
			salt = p.Salt
			begun++
			if older != nil {
				edit(t, now, syncedName, func([]byte) []byte { return older })
			}
			again := open(t, now)
			noErr(t, again.loss)
			verify(t, again)
			noErr(t, again.Close())
			older = record
		}
		ds := claimWith(t, s, driver.ClaimRequest{Queue: "q", Max: 5, Lease: time.Minute})
		for i := range ds {
			settle(t, s, ds[i], redrive.OutcomeDone)
		}
	}
}

// TestARecordIsExactAfterTheEnd: nothing is wanted of a log that is gone.
func TestARecordIsExactAfterTheEnd(t *testing.T) {
	s := synced(t, 0)
	noErr(t, s.Close())
	y, err := openSynced(s.dir, false)
	noErr(t, err)
	defer y.close()
	equal(t, y.last.Frames, 0)
	if _, err := os.Stat(filepath.Join(s.dir, FileName+logSuffix)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the log is there: %v", err)
	}
	verify(t, open(t, s.dir))
}

// TestALogThatAnotherProgramMoved is refused, as one that lacks no message.
func TestALogThatAnotherProgramMoved(t *testing.T) {
	dir := died(t, synced(t, 0))
	c, err := openConn(filepath.Join(dir, FileName), false)
	noErr(t, err, c.exec("SELECT count(*) FROM queue"))
	c.close()
	if _, err := Open(dir); err == nil || !strings.Contains(err.Error(), "though no message") {
		t.Error(err)
	}
	verify(t, open(t, dir, AcceptLoss()))
}
