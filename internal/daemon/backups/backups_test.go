package backups_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redrive/redrive/internal/daemon/backups"
)

// fixture is a keeper in virtual time, whose store is a text.
type fixture struct {
	dir    string
	keeper *backups.Keeper
	stop   func()

	mu     sync.Mutex
	log    strings.Builder
	made   int
	fail   error // of the copy
	broken error // of the check
}

// Write takes a line of the log.
func (f *fixture) Write(line []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.log.Write(line)
}

// set changes what copies and checks do, and returns how many copies were tried since the last time.
func (f *fixture) set(fail, broken error) (made int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	made, f.made, f.fail, f.broken = f.made, 0, fail, broken
	return made
}

func (f *fixture) run(t *testing.T, keep int) {
	t.Helper()
	f.keeper = backups.New(backups.Options{
		Dir: f.dir, Every: time.Hour, Keep: keep, File: "redrive.db", Log: slog.New(slog.NewTextHandler(f, nil)),
		Copy: func(_ context.Context, w io.Writer) error {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.made++
			_, err := io.WriteString(w, "the store")
			return errors.Join(err, f.fail)
		},
		Check: func(_ context.Context, dir string) error {
			text, err := os.ReadFile(filepath.Join(dir, "redrive.db"))
			if string(text) != "the store" {
				t.Errorf("the copy is %q, %v", text, err)
			}
			f.mu.Lock()
			defer f.mu.Unlock()
			return errors.Join(f.broken, os.WriteFile(filepath.Join(dir, "redrive.lock"), nil, 0o600)) // as opening a store does
		},
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { f.keeper.Run(ctx); close(ended) }()
	f.stop = func() { cancel(); <-ended }
	synctest.Wait()
}

func (f *fixture) copies(t *testing.T) (names []string) {
	t.Helper()
	all, err := os.ReadDir(f.dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range all {
		names = append(names, e.Name())
		if strings.HasPrefix(e.Name(), ".") {
			t.Errorf("%s is left", e.Name())
		}
		if in, err := os.ReadDir(filepath.Join(f.dir, e.Name())); strings.HasPrefix(e.Name(), "redrive-2") && (err != nil || len(in) != 1) {
			t.Errorf("in %s: %v %v", e.Name(), in, err)
		}
	}
	return names
}

func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// A copy is made at once and at each interval, the newest are kept, and a process that starts again waits for the
// rest of the interval.
func TestCopiesAreMadeAndTheNewestKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fixture{dir: filepath.Join(t.TempDir(), "backups")}
		f.run(t, 3)
		pass(4*time.Hour + time.Minute)
		if names := strings.Join(f.copies(t), " "); names != "redrive-20000101T020000Z redrive-20000101T030000Z redrive-20000101T040000Z" {
			t.Error(names)
		}
		if s := f.keeper.Status(); s.Copies != 3 || s.Bytes != 9 || time.Since(s.Newest) != time.Minute || s.Missing(time.Now()) != "" {
			t.Errorf("%+v", s)
		}
		f.stop()
		for _, name := range []string{".unfinished-123", "redrive-mine"} { // a crash's, and somebody's
			if err := os.MkdirAll(filepath.Join(f.dir, name), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		f.set(nil, nil)
		f.run(t, 2)
		pass(58 * time.Minute)
		if s, made := f.keeper.Status(), f.set(nil, nil); made != 0 || s.Copies != 3 || s.Bytes != 9 {
			t.Errorf("%d made, %+v", made, s)
		}
		pass(2 * time.Minute)
		if names := strings.Join(f.copies(t), " "); names != "redrive-20000101T040000Z redrive-20000101T050000Z redrive-mine" {
			t.Error(names)
		}
		f.stop()
	})
}

// A copy that fails, or is not whole, leaves nothing, takes no old one away, is tried again, and is said once.
func TestACopyThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fixture{dir: t.TempDir()}
		f.run(t, 1)
		f.set(errors.New("no space left"), nil)
		pass(3 * time.Hour)
		tries := f.set(nil, errors.New("page 7 is damaged"))
		pass(time.Hour)
		if names := strings.Join(f.copies(t), " "); names != "redrive-20000101T000000Z" || tries < 10 {
			t.Error(names, tries)
		}
		if s := f.keeper.Status(); !strings.Contains(s.Missing(time.Now()), "page 7 is damaged") {
			t.Errorf("%+v", s)
		}
		f.set(nil, nil)
		pass(10 * time.Minute)
		if s := f.keeper.Status(); s.Missing(time.Now()) != "" || s.Copies != 1 || time.Since(s.Newest) > 10*time.Minute {
			t.Errorf("%+v", s)
		}
		f.stop()
		for what, times := range map[string]int{"could not be made": 1, "made again": 1} {
			if n := strings.Count(f.log.String(), what); n != times {
				t.Errorf("%q is said %d times:\n%s", what, n, f.log.String())
			}
		}
	})
}
