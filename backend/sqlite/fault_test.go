package sqlite

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	sqlite3 "modernc.org/sqlite/lib"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/childtest"
	"github.com/redrive/redrive/internal/leaktest"
)

// Other processes that have a store: one holds it until its input ends, one works with it
// until it is killed.
var (
	holder = childtest.Part{Name: "hold", Run: func(_ context.Context, words []string) error {
		s, err := Open(words[0])
		if err != nil {
			return err
		}
		fmt.Println("open")
		_, _ = os.Stdin.Read(make([]byte, 1)) // until the test closes it
		return s.Close()
	}}
	flooder = childtest.Part{Name: "flood", Run: func(_ context.Context, words []string) error {
		flood(words[0])
		return nil
	}}
)

func TestMain(m *testing.M) {
	os.Exit(childtest.Main(func() int { return leaktest.Main(m.Run) }, holder, flooder))
}

// flood publishes, claims and settles, and writes a line once something is
// acknowledged, "p ID" or "d ID", or is about to be settled, "s ID".
func flood(dir string) {
	s, err := Open(dir)
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	for range 8 {
		go func() {
			for {
				msgs := []redrive.Message{message("q", "x"), message("q", "y")}
				if driver.FirstError(s.Publish(context.Background(), msgs)) == nil {
					fmt.Printf("p %s\np %s\n", msgs[0].ID, msgs[1].ID)
				}
			}
		}()
	}
	for {
		ds, _ := s.Claim(context.Background(), driver.ClaimRequest{Queue: "q", Max: 20, Lease: time.Minute})
		for i := range ds {
			if i%3 == 0 {
				continue
			}
			fmt.Printf("s %s\n", ds[i].ID)
			if driver.FirstError(s.Settle(context.Background(), []driver.Settlement{{Receipt: ds[i].Receipt, Outcome: redrive.OutcomeDone}})) == nil {
				fmt.Printf("d %s\n", ds[i].ID)
			}
		}
	}
}

// TestKillLosesNothing kills a process that works with the store, again and again:
// what was acknowledged is there, what was settled is not, and the ledger fits.
func TestKillLosesNothing(t *testing.T) {
	dir := t.TempDir()
	waiting, begun, settled := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for round := range 5 {
		other := flooder.Command(t, dir)
		out, err := other.StdoutPipe()
		noErr(t, err, other.Start())
		lines := bufio.NewScanner(out)
		for n := 0; lines.Scan(); n++ {
			if n == 400*(round+1) {
				noErr(t, other.Process.Kill())
			}
			switch verb, id, _ := strings.Cut(lines.Text(), " "); {
			case driver.CheckID(id) != nil: // the line was cut by the death
			case verb == "p":
				waiting[id] = !begun[id] // another may have been quicker to settle it
			case verb == "s":
				waiting[id], begun[id] = false, true
			case verb == "d":
				settled[id] = true
			}
		}
		_ = other.Wait()
		s := open(t, dir)
		verify(t, s)
		found := map[string]bool{}
		q := redrive.Query{Queue: "q", Limit: redrive.MaxPage}
		for more := true; more; more = q.After != "" {
			page, err := s.Find(t.Context(), q)
			noErr(t, err)
			for i := range page.Entries {
				found[page.Entries[i].ID] = true
			}
			q.After = page.Next
		}
		for id, must := range waiting {
			if must && !found[id] {
				t.Errorf("round %d: %s was acknowledged and is not there", round, id)
			}
			if settled[id] && found[id] {
				t.Errorf("round %d: %s was settled and is back", round, id)
			}
		}
		clear(begun)
		waiting = found // also what was published or settled without an acknowledgement
		noErr(t, s.Close())
	}
}

func TestSecondProcessIsRefused(t *testing.T) {
	dir := t.TempDir()
	other := holder.Command(t, dir)
	in, err := other.StdinPipe()
	noErr(t, err)
	out, err := other.StdoutPipe()
	noErr(t, err)
	noErr(t, other.Start())
	line := make([]byte, 64)
	n, err := out.Read(line)
	noErr(t, err)
	equal(t, strings.TrimSpace(string(line[:n])), "open")
	_, err = Open(dir)
	if !errors.Is(err, redrive.ErrInUse) || !strings.Contains(err.Error(), strconv.Itoa(other.Process.Pid)) {
		t.Fatalf("want an error that names process %d, got %v", other.Process.Pid, err)
	}
	if _, err := Check(t.Context(), dir, nil); !errors.Is(err, redrive.ErrInUse) {
		t.Fatalf("check: %v", err)
	}
	noErr(t, in.Close(), other.Wait())
	open(t, dir)
}

func TestNewerSchemaIsRefused(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	noErr(t, s.between(t.Context(), func() error { return s.w.exec("PRAGMA user_version = 99") }), s.Close())
	_, err := Open(dir)
	var e *redrive.Error
	if !errors.As(err, &e) || e.Hint == "" || errors.Is(err, redrive.ErrCorrupt) || !strings.Contains(err.Error(), "99") {
		t.Fatal(err)
	}
}

// A store that an earlier build made is not damaged: nobody is sent to check or salvage it.
func TestStoresOfEarlierBuildsAreRefused(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	noErr(t, s.between(t.Context(), func() error { return s.w.exec("PRAGMA user_version = 1") }), s.Close())
	_, opened := Open(dir)
	_, checked := Check(t.Context(), dir, nil)
	_, salvaged := Salvage(t.Context(), dir, filepath.Join(t.TempDir(), "new"), nil)
	for _, err := range []error{opened, checked, salvaged} {
		var e *redrive.Error
		if !errors.As(err, &e) || errors.Is(err, redrive.ErrCorrupt) || !strings.Contains(e.Hint, "drain it") || !strings.Contains(e.Hint, "copy") {
			t.Error(err)
		}
	}
}

func TestForeignFilesAreRefused(t *testing.T) {
	for name, content := range map[string][]byte{
		"text":   bytes.Repeat([]byte("not a database, only text. "), 1000),
		"sqlite": foreignDatabase(t),
	} {
		dir := t.TempDir()
		noErr(t, os.WriteFile(filepath.Join(dir, FileName), content, 0o600))
		_, err := Open(dir)
		if !errors.Is(err, redrive.ErrCorrupt) || !strings.Contains(err.Error(), "store check") || !strings.Contains(err.Error(), "store salvage") {
			t.Errorf("%s: %v", name, err)
		}
		after, _ := os.ReadFile(filepath.Join(dir, FileName))
		if !bytes.Equal(after, content) {
			t.Errorf("%s: the file was changed", name)
		}
	}
}

func foreignDatabase(t *testing.T) []byte {
	path := filepath.Join(t.TempDir(), "x.db")
	c, err := openConn(path, true)
	noErr(t, err, c.exec("CREATE TABLE x (a); INSERT INTO x VALUES (1)"))
	c.close()
	b, err := os.ReadFile(path)
	noErr(t, err)
	return b
}

func TestDifferingSchemaIsRefused(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	noErr(t, s.between(t.Context(), func() error { return s.w.exec("ALTER TABLE claim ADD COLUMN x INTEGER") }), s.Close())
	if _, err := Open(dir); !errors.Is(err, redrive.ErrCorrupt) {
		t.Fatal(err)
	}
}

func TestDiskFullAndRoomAgain(t *testing.T) {
	s := open(t, t.TempDir())
	publish(t, s, message("q", "a"), message("q", "b"))
	ds := claimAll(t, s, "q")
	empty := fill(t, s)
	var accepted int
	var err error
	for err == nil {
		if err = driver.FirstError(s.Publish(t.Context(), []redrive.Message{message("q", strings.Repeat("x", 3000))})); err == nil {
			accepted++
		}
	}
	if !errors.Is(err, redrive.ErrFull) {
		t.Fatal(err)
	}
	settle(t, s, ds[0], redrive.OutcomeDone) // what frees room goes on
	empty()
	settle(t, s, ds[1], redrive.OutcomeDone)
	publish(t, s, message("q", "c"))
	c, err := s.Counts(t.Context(), "q")
	noErr(t, err)
	equal(t, c[0].AllWaiting(), int64(accepted)+1)
	verify(t, s)
}

func TestWritersAreNeverBusy(t *testing.T) {
	s := open(t, t.TempDir())
	ctx, stop := context.WithCancel(t.Context())
	var readers, writers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			for ctx.Err() == nil {
				if _, err := s.Find(context.Background(), redrive.Query{Queue: "q"}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for range 16 {
		writers.Go(func() {
			for range 50 {
				if err := driver.FirstError(s.Publish(context.Background(), []redrive.Message{message("q", "x")})); err != nil {
					t.Error(err)
				}
				ds, err := s.Claim(context.Background(), driver.ClaimRequest{Queue: "q", Max: 2, Lease: time.Minute})
				if err != nil {
					t.Error(err)
				}
				for i := range ds {
					if err := driver.FirstError(s.Settle(context.Background(), []driver.Settlement{{Receipt: ds[i].Receipt, Outcome: redrive.OutcomeDone}})); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	writers.Wait()
	stop()
	readers.Wait()
	verify(t, s)
}

func size(t *testing.T, s *Store, suffix string) int64 {
	t.Helper()
	info, err := os.Stat(filepath.Join(s.dir, FileName+suffix))
	noErr(t, err)
	return info.Size()
}

func TestLogIsBounded(t *testing.T) {
	s := open(t, t.TempDir())
	body := strings.Repeat("x", 2000)
	fillUp := func() {
		for range fillRounds {
			msgs := make([]redrive.Message, 500)
			for i := range msgs {
				msgs[i] = message("q", body)
			}
			publish(t, s, msgs...)
			_, err := s.Find(t.Context(), redrive.Query{Queue: "q", Limit: 1000, Bodies: true}) // a reader in between
			noErr(t, err)
		}
	}
	fillUp()
	if n := size(t, s, "-wal"); n > 3*logPages*4096 {
		t.Fatalf("the log has %d MB", n>>20)
	}
	// Under a reader that does not end, the log grows; once it ends, it is bounded
	// again and given back when the store is idle.
	release := make(chan struct{})
	reading := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		noErr(t, s.read(context.Background(), func(c *conn) error {
			return snapshot(c, func() error {
				_, err := c.value("SELECT count(*) FROM queue")
				close(reading)
				<-release
				return err
			})
		}))
	})
	<-reading
	fillUp()
	close(release)
	wg.Wait()
	eventually(t, "the log to be given back", func() bool { return size(t, s, "-wal") == 0 })
}

// eventually polls what a real file does by itself.
func eventually(t *testing.T, what string, so func() bool) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	poll := time.NewTicker(5 * time.Millisecond)
	defer poll.Stop()
	for !so() {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %s", what)
		}
		<-poll.C
	}
}

func TestFileShrinksAfterADrain(t *testing.T) {
	s := open(t, t.TempDir())
	body := strings.Repeat("x", 2000)
	msgs := make([]redrive.Message, 5000)
	for i := range msgs {
		msgs[i] = message("q", body)
	}
	publish(t, s, msgs...)
	eventually(t, "the log to be moved", func() bool { return size(t, s, "") > 8<<20 })
	for {
		ds := claimWith(t, s, driver.ClaimRequest{Queue: "q", Max: 1000})
		if len(ds) == 0 {
			break
		}
		list := make([]driver.Settlement, len(ds))
		for i := range ds {
			list[i] = driver.Settlement{Receipt: ds[i].Receipt, Outcome: redrive.OutcomeDone}
		}
		noErr(t, s.Settle(t.Context(), list)...)
	}
	eventually(t, "the file to shrink", func() bool { return size(t, s, "") < 3<<20 })
	verify(t, s)
}

func TestBackupIsAStore(t *testing.T) {
	s := open(t, t.TempDir())
	publish(t, s, message("q", "a"), message("q", "b"))
	d := claimAll(t, s, "q")
	settle(t, s, d[0], redrive.OutcomeDead)
	var b bytes.Buffer
	noErr(t, s.Backup(t.Context(), &b))
	dir := t.TempDir()
	noErr(t, os.WriteFile(filepath.Join(dir, FileName), b.Bytes(), 0o600))
	copied := open(t, dir)
	verify(t, copied)
	equal(t, entry(t, copied, d[0].Ref()).State, redrive.StateDead)
	equal(t, entry(t, copied, d[1].Ref()).Suspect, true)
	report, err := Check(t.Context(), s.dir, nil)
	if !errors.Is(err, redrive.ErrInUse) {
		t.Fatal(report, err)
	}
}

// damaged makes a store with messages and returns its folder and pages by what is
// on them.
func damaged(t *testing.T) (dir string, root func(name string) int64) {
	t.Helper()
	dir = t.TempDir()
	s := open(t, dir)
	noErr(t, s.Configure(t.Context(), "ordered", driver.QueueSettings{OrderByKey: true}))
	for i := range 40 {
		msgs := make([]redrive.Message, 50)
		for j := range msgs {
			msgs[j] = redrive.Message{Queue: "q", Kind: "k", Body: fmt.Appendf(nil, "%d/%d %s", i, j, strings.Repeat("x", 300))}
		}
		publish(t, s, msgs...)
	}
	publish(t, s, redrive.Message{Queue: "ordered", ID: "first", Key: "k"}, redrive.Message{Queue: "ordered", ID: "second", Key: "k"})
	for _, d := range claimWith(t, s, driver.ClaimRequest{Queue: "q", Max: 20}) {
		noErr(t, s.Settle(t.Context(), []driver.Settlement{{Receipt: d.Receipt, Outcome: redrive.OutcomeDead, Reason: redrive.ReasonPermanent,
			Failure: &redrive.Failure{Message: "boom", Types: []string{"x"}, Signature: "sig"}}})...)
	}
	noErr(t, s.Close())
	c, err := openConn(filepath.Join(dir, FileName), false)
	noErr(t, err)
	roots := map[string]int64{}
	st := c.stmt("SELECT name, rootpage FROM sqlite_schema")
	for st.next() {
		roots[st.colText(0)] = st.colInt(1)
	}
	noErr(t, st.done())
	c.close()
	return dir, func(name string) int64 { return roots[name] }
}

// spoil overwrites the page with nonsense.
func spoil(t *testing.T, dir string, page int64) {
	t.Helper()
	f, err := os.OpenFile(filepath.Join(dir, FileName), os.O_RDWR, 0)
	noErr(t, err)
	_, err = f.WriteAt(bytes.Repeat([]byte{0xA5}, 4096), (page-1)*4096)
	noErr(t, err, f.Close())
}

// leaf returns the first leaf below a page.
func leaf(t *testing.T, dir string, page int64) int64 {
	t.Helper()
	f, err := os.Open(filepath.Join(dir, FileName))
	noErr(t, err)
	defer func() { _ = f.Close() }()
	b := make([]byte, 4096)
	for {
		_, err := f.ReadAt(b, (page-1)*4096)
		noErr(t, err)
		if b[0] == 0x0d || b[0] == 0x0a {
			return page
		}
		cell := binary.BigEndian.Uint16(b[12:])
		page = int64(binary.BigEndian.Uint32(b[cell:]))
	}
}

func TestDamagedPagesStopTheStoreAndCanBeSalvaged(t *testing.T) {
	for i, tc := range []struct {
		name string
		page func(dir string, root func(string) int64) int64
		lost bool // some messages are gone for good
	}{
		{"a leaf of waiting", func(dir string, root func(string) int64) int64 { return leaf(t, dir, root("waiting")) }, false},
		{"the root of waiting", func(_ string, root func(string) int64) int64 { return root("waiting") }, false},
		{"the root of dead", func(_ string, root func(string) int64) int64 { return root("dead") }, false},
		{"a leaf of bodies", func(dir string, root func(string) int64) int64 { return leaf(t, dir, root("message")) }, true},
		{"the first page", func(string, func(string) int64) int64 { return 1 }, false},
		{"the root of failures", func(_ string, root func(string) int64) int64 { return root("failure") }, false},
	} {
		if i == damagedCases {
			break
		}
		t.Run(tc.name, func(t *testing.T) {
			dir, root := damaged(t)
			sound, err := Check(t.Context(), dir, nil)
			noErr(t, err)
			equal(t, []any{sound.Waiting, sound.Dead, len(sound.Problems)}, []any{1982, 20, 0})
			spoil(t, dir, tc.page(dir, root))
			report, err := Check(t.Context(), dir, nil)
			if err == nil && len(report.Problems) == 0 || err != nil && !errors.Is(err, redrive.ErrCorrupt) {
				t.Fatalf("check found %v, %v", report.Problems, err)
			}
			stops(t, dir)
			before, err := os.ReadFile(filepath.Join(dir, FileName))
			noErr(t, err)
			to := filepath.Join(t.TempDir(), "new")
			report, err = Salvage(t.Context(), dir, to, nil)
			noErr(t, err)
			if got := report.Waiting + report.Dead + int64(len(report.Lost)); got != 2002 || (len(report.Lost) > 0) != tc.lost || len(report.Lost) > 20 {
				t.Fatalf("%d waiting, %d dead, %d lost: %v", report.Waiting, report.Dead, len(report.Lost), report.Problems)
			}
			s := open(t, to)
			verify(t, s)
			equal(t, len(claimAll(t, s, "ordered")), 1)
			after, err := os.ReadFile(filepath.Join(dir, FileName))
			noErr(t, err)
			if !bytes.Equal(before, after) {
				t.Fatal("the damaged file was changed")
			}
		})
	}
}

// stops opens a damaged store and works with it until it stops.
func stops(t *testing.T, dir string) {
	t.Helper()
	s, err := Open(dir, OnFatal(func(err error) { t.Errorf("fatal: %v", err) }))
	if err == nil {
		defer func() { _ = s.Close() }()
		for i := 0; err == nil && i < 100; i++ {
			var ds []redrive.Delivery
			if ds, err = s.Claim(t.Context(), driver.ClaimRequest{Queue: "q", Max: 100, Lease: time.Minute}); err == nil && len(ds) > 0 {
				err = driver.FirstError(s.Settle(t.Context(), []driver.Settlement{{Receipt: ds[0].Receipt, Outcome: redrive.OutcomeDead, Reason: redrive.ReasonManual, Failure: &redrive.Failure{}}}))
			}
			if err == nil {
				_, err = s.Find(t.Context(), redrive.Query{Bodies: true, State: redrive.StateDead})
			}
		}
		if again := driver.FirstError(s.Publish(t.Context(), []redrive.Message{message("q", "x")})); !errors.Is(again, redrive.ErrCorrupt) {
			t.Errorf("later calls: %v", again)
		}
	}
	if !errors.Is(err, redrive.ErrCorrupt) || !strings.Contains(err.Error(), "store check") || !strings.Contains(err.Error(), "store salvage") {
		t.Fatal(err)
	}
}

// fill lets the file grow no more, as a full disk would.
func fill(t testing.TB, s driver.Store) (empty func()) {
	limit := func(pages string) {
		store := s.(*Store)
		noErr(t, store.between(context.Background(), func() error { return store.w.exec("PRAGMA max_page_count = " + pages) }))
	}
	limit("1") // SQLite takes the present size instead
	return func() { limit("4294967294") }
}

func TestWhatCannotBeSyncedOrPanicsIsFatal(t *testing.T) {
	for name, fn := range map[string]func(*tx) error{
		"fsync": func(*tx) error { return &sqlError{code: sqlite3.SQLITE_IOERR_FSYNC, text: "disk I/O error"} },
		"panic": func(*tx) error { panic("boom") },
	} {
		fatal := make(chan error, 1)
		s, err := Open(t.TempDir(), OnFatal(func(err error) { fatal <- err }))
		noErr(t, err)
		if err := s.do(t.Context(), 1, fn); err == nil {
			t.Errorf("%s: the call succeeded", name)
		}
		if err := <-fatal; err == nil {
			t.Errorf("%s: nothing was said", name)
		}
		if err := driver.FirstError(s.Publish(t.Context(), []redrive.Message{message("q", "x")})); err == nil || errors.Is(err, redrive.ErrClosed) {
			t.Errorf("%s: later calls: %v", name, err)
		}
		noErr(t, s.Close())
	}
}

// TestAFailedSyncAcknowledgesNothing: the log's sync fails once and would succeed the
// second time, which proves nothing about what it should have written.
func TestAFailedSyncAcknowledgesNothing(t *testing.T) {
	fatal := make(chan error, 1)
	var broken atomic.Bool
	syncs := 0
	s, err := Open(t.TempDir(), OnFatal(func(err error) { fatal <- err }), func(s *Store) {
		s.sync = func(f *os.File) error {
			if broken.Load() {
				if syncs++; syncs == 1 {
					return syscall.EIO
				}
			}
			return syncData(f)
		}
	})
	noErr(t, err)
	publish(t, s, message("q", "good"))
	broken.Store(true)
	for range 2 {
		if err := driver.FirstError(s.Publish(t.Context(), []redrive.Message{message("q", "x")})); err == nil || errors.Is(err, redrive.ErrClosed) {
			t.Errorf("the publish ended with %v", err)
		}
	}
	if err := <-fatal; !errors.Is(err, syscall.EIO) {
		t.Errorf("it said %v", err)
	}
	noErr(t, s.Close())
	if syncs != 1 {
		t.Errorf("the log was synced %d times after the failure", syncs-1)
	}
}

// TestOneFaultyItemFailsByItself: what its neighbours in the group wrote stays.
func TestOneFaultyItemFailsByItself(t *testing.T) {
	s := open(t, t.TempDir())
	publish(t, s, redrive.Message{Queue: "q", ID: "a"}, redrive.Message{Queue: "q", ID: "b"}, redrive.Message{Queue: "emits", ID: "taken", Body: []byte("1")})
	ds := claimAll(t, s, "q")
	emit := redrive.Message{Queue: "emits", ID: "taken", Body: []byte("2")}
	errs := s.Settle(t.Context(), []driver.Settlement{
		{Receipt: ds[0].Receipt, Outcome: redrive.OutcomeDone, Emit: []redrive.Message{{Queue: "new-queue", ID: "first"}, emit}},
		{Receipt: ds[1].Receipt, Outcome: redrive.OutcomeDone},
	})
	if !errors.Is(errs[0], redrive.ErrConflict) || errs[1] != nil {
		t.Fatal(errs)
	}
	es, err := s.Get(t.Context(), []redrive.Ref{ds[0].Ref(), ds[1].Ref(), {Queue: "new-queue", ID: "first"}})
	noErr(t, err)
	if es[0] == nil || es[0].State != redrive.StateLeased || es[1] != nil || es[2] != nil {
		t.Fatal(es)
	}
	verify(t, s)
	settle(t, s, ds[0], redrive.OutcomeDone)
}
