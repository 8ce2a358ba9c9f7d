// Package backups copies an embedded store at fixed intervals into a folder, a folder for each copy, opens
// each copy to see that it is whole, and removes the oldest.
package backups

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redrive/redrive/internal/private"
)

// Names of folders: of a copy, and of one that is being made.
const (
	prefix     = "redrive-"
	stamp      = "20060102T150405Z"
	unfinished = ".unfinished-"
)

// retryMost is how long after a failure the next copy is tried, or a quarter of the interval if that is less.
const retryMost = 10 * time.Minute

// Options configures a Keeper. Each field but Log is needed.
type Options struct {
	Dir   string        // where the copies are; made if it is not there
	Every time.Duration // from one to the next
	Keep  int           // copies that are left; older ones are removed
	File  string        // name of the store's file in the folder of a copy
	// Copy writes a consistent copy of the store, while it works.
	Copy func(ctx context.Context, w io.Writer) error
	// Check opens the copy in a folder, and says what is wrong with it.
	Check func(ctx context.Context, dir string) error
	Log   *slog.Logger // slog.Default
}

// Status is what became of the copies of a store.
type Status struct {
	Every  time.Duration
	Newest time.Time // when the newest whole copy was begun; zero: there is none
	Bytes  int64     // of it
	Copies int
	Failed error // why the newest try failed; nil: it did not
	Since  time.Time
}

// Keeper makes the copies. It is safe for concurrent use.
type Keeper struct {
	o  Options
	mu sync.Mutex
	s  Status
}

// New returns a keeper that makes nothing before Run.
func New(o Options) *Keeper {
	if o.Log == nil {
		o.Log = slog.Default()
	}
	return &Keeper{o: o, s: Status{Every: o.Every}}
}

// Status returns what became of the copies.
func (k *Keeper) Status() Status {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.s
}

// Run makes copies until ctx ends: the first at once, if the newest is older than the interval.
func (k *Keeper) Run(ctx context.Context) {
	wait := k.found()
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		began := time.Now()
		err := k.make(ctx, began)
		if ctx.Err() != nil {
			return
		}
		k.note(ctx, err)
		if wait = k.o.Every - time.Since(began); err != nil {
			wait = min(retryMost, k.o.Every/4)
		}
	}
}

// found looks at the copies that are there, and returns when the next is due.
func (k *Keeper) found() time.Duration {
	names := k.names()
	if len(names) == 0 {
		return 0
	}
	newest, _ := moment(names[len(names)-1])
	k.mu.Lock()
	defer k.mu.Unlock()
	k.s.Newest, k.s.Copies = newest, len(names)
	if info, err := os.Stat(filepath.Join(k.o.Dir, names[len(names)-1], k.o.File)); err == nil {
		k.s.Bytes = info.Size()
	}
	return max(k.o.Every-time.Since(newest), 0)
}

// names returns the folders of copies, the oldest first.
func (k *Keeper) names() (names []string) {
	all, err := os.ReadDir(k.o.Dir)
	if err != nil {
		return nil // the next copy says why
	}
	for _, e := range all {
		if _, ok := moment(e.Name()); ok && e.IsDir() {
			names = append(names, e.Name())
		}
	}
	slices.Sort(names)
	return names
}

// moment is when a copy was begun, by the name of its folder.
func moment(name string) (time.Time, bool) {
	rest, ok := strings.CutPrefix(name, prefix)
	if !ok {
		return time.Time{}, false
	}
	at, err := time.Parse(stamp, rest)
	return at, err == nil
}

// make makes one copy: under a name that no reader takes for a whole one, until it was opened.
func (k *Keeper) make(ctx context.Context, began time.Time) error {
	if err := os.MkdirAll(k.o.Dir, private.Folder); err != nil {
		return err
	}
	if err := k.tidy(); err != nil {
		return err
	}
	dir, err := os.MkdirTemp(k.o.Dir, unfinished)
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // it is gone after the rename
	bytes, err := k.write(ctx, filepath.Join(dir, k.o.File))
	if err != nil {
		return err
	}
	if err := k.o.Check(ctx, dir); err != nil {
		return fmt.Errorf("the copy is not whole: %w", err)
	}
	if err := k.bare(dir); err != nil {
		return err
	}
	if err := os.Rename(dir, filepath.Join(k.o.Dir, prefix+began.UTC().Format(stamp))); err != nil {
		return err
	}
	if err := private.SyncNames(k.o.Dir); err != nil {
		return err
	}
	names := k.names()
	for len(names) > k.o.Keep {
		if err := os.RemoveAll(filepath.Join(k.o.Dir, names[0])); err != nil {
			return fmt.Errorf("the copy is made, but an old one cannot be removed: %w", err)
		}
		names = names[1:]
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.s.Newest, k.s.Bytes, k.s.Copies = began, bytes, len(names)
	return nil
}

func (k *Keeper) write(ctx context.Context, path string) (int64, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, private.File) //nolint:gosec // the folder is the operator's choice
	if err != nil {
		return 0, err
	}
	err = errors.Join(k.o.Copy(ctx, f), f.Sync())
	info, errStat := f.Stat()
	if err = errors.Join(err, errStat, f.Close()); err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// bare leaves the file of the store alone in its folder, and makes its name durable.
func (k *Keeper) bare(dir string) error {
	all, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range all { // what opening it has made
		if e.Name() == k.o.File {
			continue
		}
		if err := os.Remove(filepath.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	return private.SyncNames(dir)
}

// tidy removes what a process left that died while it made a copy.
func (k *Keeper) tidy() error {
	left, err := filepath.Glob(filepath.Join(k.o.Dir, unfinished+"*"))
	for _, dir := range left {
		err = errors.Join(err, os.RemoveAll(dir))
	}
	return err
}

// note keeps what became of a try, and says so when it is another thing than before.
func (k *Keeper) note(ctx context.Context, err error) {
	k.mu.Lock()
	before := k.s.Failed
	if k.s.Failed = err; err == nil || before == nil {
		k.s.Since = time.Now()
	}
	s := k.s
	k.mu.Unlock()
	attrs := []slog.Attr{slog.String("dir", k.o.Dir)}
	switch {
	case err != nil && before == nil:
		k.o.Log.LogAttrs(ctx, slog.LevelError, "a backup could not be made", append(attrs, slog.Time("newest", s.Newest), slog.Any("error", err))...)
	case err == nil && before != nil:
		k.o.Log.LogAttrs(ctx, slog.LevelWarn, "backups are made again", append(attrs, slog.Int64("bytes", s.Bytes))...)
	case err == nil:
		k.o.Log.LogAttrs(ctx, slog.LevelInfo, "backup made", append(attrs, slog.Int64("bytes", s.Bytes), slog.Int("copies", s.Copies))...)
	}
}

// Missing says why there is no copy as young as it should be, with one interval's grace; "" if there is.
func (s *Status) Missing(now time.Time) string {
	switch {
	case s.Failed != nil:
		return s.Failed.Error()
	case !s.Newest.IsZero() && now.Sub(s.Newest) > 2*s.Every:
		return "the newest is older than two intervals"
	}
	return ""
}
