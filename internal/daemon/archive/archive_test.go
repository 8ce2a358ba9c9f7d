package archive_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/internal/daemon/archive"
)

func open(t *testing.T, dir string) *archive.Archive {
	t.Helper()
	a, err := archive.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	})
	return a
}

func entry(i int) redrive.Entry {
	at := time.Date(2026, 1, 1, 0, 0, i, 123456789, time.UTC)
	f := &redrive.Failure{
		At: at, Duration: time.Second, Attempt: 2, Reason: redrive.ReasonExhausted, Types: []string{"*net.OpError", "*os.SyscallError"},
		Message: "no way\n", Stack: "main.go:7", Host: "h", IP: "10.0.0.1", PID: 7, Service: "s", Version: "v1", Env: "test",
		Config:  redrive.FailureConfig{Target: "http://x", Timeout: time.Minute, Policy: "default", MaxAttempts: 3},
		TraceID: "t", Details: map[string]string{"http.status": "500"}, Signature: fmt.Sprintf("sig%d", i%3),
	}
	e := redrive.Entry{
		Message: redrive.Message{
			ID: fmt.Sprintf("m%d", i), Queue: "q", Kind: "k", Key: "key", Body: fmt.Appendf(nil, "body %d", i), ReplyTo: "answers",
			Headers:     redrive.Headers{{Name: "a", Value: []byte("b")}, {Name: "a", Value: []byte{0xff, 0}}},
			PublishedAt: at.Add(-time.Hour), ExpiresAt: at.Add(time.Hour),
			Lineage: redrive.Lineage{Generation: 2, Redrives: 1, Plan: "p", Origin: "o/i", EditedFrom: "q/x"},
		},
		State: redrive.StateDead, Reason: redrive.ReasonExhausted, Attempts: 4, Crashes: 1, Suspect: true, DiedAt: at,
		History: redrive.History{Count: 2, First: f, Last: f},
	}
	o := redrive.Message{ID: e.ID, Queue: "q", Kind: "before", Body: []byte{0, 1, 0xff}}
	e.Original = &o
	if i%2 == 0 {
		e.Body = []byte{0xfe, 0, byte(i)}
	}
	return e
}

func entries(from, to int) (list []redrive.Entry) {
	for i := from; i < to; i++ {
		list = append(list, entry(i))
	}
	return list
}

func put(t *testing.T, a *archive.Archive, list []redrive.Entry) {
	t.Helper()
	if err := a.Archive(context.Background(), list); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, a *archive.Archive, f redrive.Query) (list []redrive.Entry) {
	t.Helper()
	if err := a.Read(context.Background(), f, func(e *redrive.Entry) bool { list = append(list, *e); return true }); err != nil {
		t.Fatal(err)
	}
	return list
}

func TestEverythingComesBack(t *testing.T) {
	a := open(t, filepath.Join(t.TempDir(), "made", "when-needed"))
	if got := read(t, a, redrive.Query{}); got != nil {
		t.Errorf("an empty archive holds %v", got)
	}
	want := entries(0, 20)
	put(t, a, want[:7])
	put(t, a, want[7:])
	if diff := cmp.Diff(want, read(t, a, redrive.Query{})); diff != "" {
		t.Error(diff)
	}
	for name, c := range map[string]struct {
		f redrive.Query
		n int
	}{
		"text":      {redrive.Query{Text: "none of it"}, 0},
		"signature": {redrive.Query{Signature: "sig0"}, 7},
		"kind":      {redrive.Query{Kind: "other"}, 0},
		"queue":     {redrive.Query{Queue: "q", Reason: redrive.ReasonExhausted}, 20},
		"reason":    {redrive.Query{Reason: redrive.ReasonCrashed}, 0},
		"time":      {redrive.Query{Since: want[5].DiedAt, Until: want[9].DiedAt}, 5},
	} {
		if n := len(read(t, a, c.f)); n != c.n {
			t.Errorf("%s: %d; want %d", name, n, c.n)
		}
	}
	n := 0
	if err := a.Read(context.Background(), redrive.Query{}, func(*redrive.Entry) bool { n++; return n < 3 }); err != nil || n != 3 {
		t.Errorf("it went on to %d, %v", n, err)
	}
}

func TestOtherToolsReadIt(t *testing.T) {
	dir := t.TempDir()
	a := open(t, dir)
	put(t, a, entries(0, 3))
	put(t, a, entries(3, 5))
	files, err := a.Files()
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	f, err := os.Open(files[0])
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := zstd.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	b, err := io.ReadAll(r)
	if err != nil || strings.Count(string(b), "\n") != 5 || !strings.Contains(string(b), `"id":"m4"`) {
		t.Errorf("%s, %v", b, err)
	}
}

// What a crash can leave: no index, half a line of it, half a frame.
func TestDamage(t *testing.T) {
	for name, c := range map[string]struct {
		damage func(data, index string) error
		want   int
	}{
		"no index":           {func(_, index string) error { return os.Remove(index) }, 6},
		"half an index":      {func(_, index string) error { return os.Truncate(index, 30) }, 6},
		"rubbish in index":   {func(_, index string) error { return os.WriteFile(index, []byte("{\"offset\":7}\n"), 0o600) }, 6},
		"half a frame":       {func(data, _ string) error { return shorten(data, 10) }, 5},
		"half a frame, bare": {func(data, index string) error { return errors.Join(os.Remove(index), shorten(data, 10)) }, 5},
		"rubbish at the end": {func(data, _ string) error { return appendTo(data, "rubbish") }, 6},
		"nothing":            {func(data, index string) error { return errors.Join(os.Truncate(data, 0), os.Truncate(index, 0)) }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			a := open(t, dir)
			for i := range 6 {
				put(t, a, entries(i, i+1))
			}
			files, err := a.Files()
			if err != nil || len(files) != 1 {
				t.Fatal(files, err)
			}
			if err := c.damage(files[0], strings.TrimSuffix(files[0], ".ndjson.zst")+".index"); err != nil {
				t.Fatal(err)
			}
			b := open(t, dir)
			if got := read(t, b, redrive.Query{}); len(got) != c.want {
				t.Errorf("%d are read, want %d", len(got), c.want)
			}
			put(t, b, entries(10, 12)) // goes to another file
			if got := read(t, b, redrive.Query{}); len(got) != c.want+2 {
				t.Errorf("then %d are read, want %d", len(got), c.want+2)
			}
		})
	}
}

func shorten(name string, by int64) error {
	info, err := os.Stat(name)
	if err != nil {
		return err
	}
	return os.Truncate(name, info.Size()-by)
}

func appendTo(name, text string) error {
	f, err := os.OpenFile(name, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

func TestABitThatFlipsIsFound(t *testing.T) {
	dir := t.TempDir()
	a := open(t, dir)
	put(t, a, entries(0, 3))
	files, _ := a.Files()
	b, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	for i := range b {
		damaged := append([]byte(nil), b...)
		damaged[i] ^= 0x10
		if err := os.WriteFile(files[0], damaged, 0o600); err != nil {
			t.Fatal(err)
		}
		var got []redrive.Entry
		err := open(t, dir).Read(context.Background(), redrive.Query{}, func(e *redrive.Entry) bool { got = append(got, *e); return true })
		if err == nil && cmp.Diff(entries(0, 3), got) != "" {
			t.Fatalf("byte %d: other data was read", i)
		}
	}
}

// A link in the folder that leads out of it is not followed: neither a file's nor its index's.
func TestNoLinkLeadsOut(t *testing.T) {
	for _, of := range []string{".ndjson.zst", ".index"} {
		t.Run(of, func(t *testing.T) {
			elsewhere, dir := t.TempDir(), t.TempDir()
			put(t, open(t, elsewhere), entries(0, 3))
			a := open(t, dir)
			put(t, a, entries(3, 5))
			outside, _ := filepath.Glob(filepath.Join(elsewhere, "*"+of))
			inside, _ := filepath.Glob(filepath.Join(dir, "*"+of))
			if len(outside) != 1 || len(inside) != 1 {
				t.Fatal(outside, inside)
			}
			link := inside[0]
			if of == ".index" {
				if err := os.Remove(link); err != nil {
					t.Fatal(err)
				}
			} else {
				link = filepath.Join(dir, "dead-99990101T000000.000Z-x"+of)
			}
			if err := os.Symlink(outside[0], link); err != nil {
				t.Fatal(err)
			}
			var seen []string
			err := a.Read(t.Context(), redrive.Query{}, func(e *redrive.Entry) bool { seen = append(seen, e.ID); return true })
			if err == nil || !strings.Contains(err.Error(), filepath.Base(inside[0])) && !strings.Contains(err.Error(), filepath.Base(link)) {
				t.Errorf("error %v; want one that names the file", err)
			}
			for _, id := range seen {
				if id == "m0" || id == "m1" || id == "m2" {
					t.Errorf("read %s from outside of the folder", id)
				}
			}
		})
	}
}

func TestManyWriters(t *testing.T) {
	dir := t.TempDir()
	var wg sync.WaitGroup
	for w := range 4 {
		a := open(t, dir)
		for g := range 3 {
			wg.Go(func() {
				for i := range 5 {
					put(t, a, entries(w*100+g*10+i, w*100+g*10+i+1))
				}
			})
		}
	}
	wg.Wait()
	seen := map[string]bool{}
	for _, e := range read(t, open(t, dir), redrive.Query{}) {
		seen[e.ID] = true
	}
	if len(seen) != 60 {
		t.Errorf("%d of 60 are read", len(seen))
	}
}

// TestTheFolderGoesAway while a file of it is written: what is archived then is in the
// folder of that name, and only there.
func TestTheFolderGoesAway(t *testing.T) {
	for name, displace := range map[string]func(dir, file string) error{
		"the folder is deleted": func(dir, _ string) error { return os.RemoveAll(dir) },
		"the folder is moved":   func(dir, _ string) error { return os.Rename(dir, dir+"-moved") },
		"the folder is replaced": func(dir, _ string) error {
			return errors.Join(os.Rename(dir, dir+"-moved"), os.CopyFS(dir, os.DirFS(dir+"-moved")))
		},
		"the file is moved": func(dir, file string) error {
			return errors.Join(os.Mkdir(dir+"-moved", 0o700), os.Rename(file, filepath.Join(dir+"-moved", filepath.Base(file))))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "archive")
			a := open(t, dir)
			put(t, a, entries(0, 3))
			files, err := a.Files()
			if err != nil || len(files) != 1 {
				t.Fatal(files, err)
			}
			if err := displace(dir, files[0]); err != nil {
				t.Fatal(err)
			}
			before := read(t, open(t, dir), redrive.Query{})
			put(t, a, entries(3, 5))
			put(t, a, entries(5, 6))
			want := append(before, entries(3, 6)...)
			if diff := cmp.Diff(want, read(t, open(t, dir), redrive.Query{})); diff != "" {
				t.Error(diff)
			}
			if _, err := os.Stat(dir + "-moved"); err != nil {
				return
			}
			if diff := cmp.Diff(entries(0, 3), read(t, open(t, dir+"-moved"), redrive.Query{})); diff != "" {
				t.Errorf("what was moved away: %s", diff)
			}
		})
	}
}

func TestTheFolderCannotBeWritten(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	a := open(t, filepath.Join(file, "sub"))
	if err := a.Archive(context.Background(), entries(0, 1)); err == nil || !strings.Contains(err.Error(), "look at the folder") {
		t.Error(err)
	}
	if _, err := archive.Open(""); !errors.Is(err, redrive.ErrInvalid) {
		t.Error(err)
	}
	b := open(t, t.TempDir())
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if err := b.Archive(context.Background(), entries(0, 1)); !errors.Is(err, redrive.ErrClosed) {
		t.Error(err)
	}
}
