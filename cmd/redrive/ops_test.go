package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/backend/sqlite"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/wire"
)

// fill makes a store with waiting and dead messages in a new folder.
func fill(t *testing.T, waiting, dead int) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "data")
	store, err := sqlite.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	for i := range waiting {
		if err := redrive.Publish(t.Context(), store, "q", map[string]int{"n": i}); err != nil {
			t.Fatal(err)
		}
	}
	var entries []redrive.Entry
	for i := range dead {
		f := &redrive.Failure{Message: "no \x1b[31mluck", Types: []string{"error"}, Signature: "cafe"}
		entries = append(entries, redrive.Entry{Message: redrive.Message{Queue: "q", ID: fmt.Sprintf("d%d", i), Kind: "k", Body: []byte("x")},
			State: redrive.StateDead, Reason: redrive.ReasonPermanent, History: redrive.History{Count: 1, First: f}})
	}
	if _, err := store.Apply(t.Context(), driver.Batch{Put: entries}); err != nil {
		t.Fatal(err)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestArchiveOfAFolderAndBack(t *testing.T) {
	b := newBench(t)
	dir := fill(t, 3, 40)
	b.expect(exitOK, "40 of 40 archived", "dead", "archive", "--all", "--data", dir, "--rate", "10000/s")
	b.expect(exitOK, "no dead letters", "dead", "causes", "--data", dir)
	b.expect(exitOK, "0 imported", "dead", "import", filepath.Join(dir, "archive"), "--data", dir, "--kind", "other")
	b.expect(exitFailed, "holds no dead letter of the queue qq", "dead", "import", filepath.Join(dir, "archive"), "--data", dir, "--queue", "qq")
	b.expect(exitOK, "40 imported, 0 there already, 0 failed", "dead", "import", filepath.Join(dir, "archive"), "--data", dir)
	b.expect(exitOK, "0 imported, 40 there already", "dead", "import", filepath.Join(dir, "archive"), "--data", dir)
	b.expect(exitOK, "balance", "verify", "--scan", "--data", dir)
	files, err := filepath.Glob(filepath.Join(dir, "archive", "*.zst"))
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	other := fill(t, 0, 0)
	b.expect(exitOK, "40 imported", "dead", "import", files[0], "--data", other)
	export := filepath.Join(t.TempDir(), "dead.ndjson")
	b.expect(exitOK, "40 dead letters", "dead", "export", "--data", other, "-o", export)
	b.expect(exitOK, "40 imported", "dead", "import", export, "--data", fill(t, 0, 0))
	b.types = "rubbish\n"
	b.expect(exitFailed, "line 1", "dead", "import", "-", "--data", other)
	b.expect(exitOK, "0 imported, 0 there already", "dead", "import", export, "--data", other, "--text", "nowhere in them")
}

func TestPurgeAndCancel(t *testing.T) {
	b := newBench(t)
	dir := fill(t, 30, 5)
	b.expect(exitUsage, "add --yes to purge 30 messages that wait (queue q)", "queues", "purge", "q", "--data", dir)
	b.expect(exitUsage, "name messages, or a filter", "messages", "cancel", "--data", dir)
	b.expect(exitUsage, "neither a reason", "messages", "cancel", "--reason", "expired", "--data", dir)
	b.tty, b.types = true, "purge 31\n"
	b.expect(exitFailed, "nothing was removed", "queues", "purge", "q", "--dead", "--data", dir)
	b.types = "cancel 30\n"
	b.expect(exitOK, "30 of 30 cancelled", "messages", "cancel", "--queue", "q", "--data", dir, "--rate", "10000/s")
	b.types = "purge 5\n"
	b.expect(exitOK, "5 messages removed from q", "queues", "purge", "q", "--dead", "--data", dir)
	b.tty = false
	b.expect(exitOK, "nothing to remove", "queues", "purge", "q", "--dead", "--data", dir)
	out := b.expect(exitOK, "", "verify", "--scan", "--data", dir, "--json")
	var v wire.Verified
	if err := json.Unmarshal([]byte(out), &v); err != nil || !v.Balanced || v.Queues[0].Ledger.Dropped != 35 {
		t.Errorf("%s, %v", out, err)
	}
}

func TestCopy(t *testing.T) {
	b := newBench(t)
	from, to := fill(t, 70, 20), filepath.Join(t.TempDir(), "copy")
	b.expect(exitOK, "90 copied, 0 there already, 0 failed", "copy", "--from", from, "--to", to)
	b.expect(exitOK, "0 copied, 90 there already, 0 failed", "copy", "--from", from, "--to", to)
	for _, dir := range []string{from, to} {
		b.expect(exitOK, "balance", "verify", "--scan", "--data", dir)
	}
	var lists [2]string
	for i, dir := range []string{from, to} {
		lists[i] = b.expect(exitOK, "", "dead", "show", "q/d7", "--data", dir, "--json")
	}
	if lists[0] != lists[1] {
		t.Errorf("the copy differs:\n%s\n%s", lists[0], lists[1])
	}
	b.expect(exitUsage, "the same", "copy", "--from", from, "--to", from)
	b.expect(exitFailed, "from:", "copy", "--from", "nonsense://x", "--to", to)
}

// What was flipped in the source is found at the copy, and in the copy.
func TestCopyTakesChecksumsAlong(t *testing.T) {
	b := newBench(t)
	from, to := fill(t, 2, 2), filepath.Join(t.TempDir(), "copy")
	store, err := sqlite.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	m := redrive.Message{Queue: "q", ID: "flipped", Body: []byte("body")}
	sum := driver.Checksum(&m) ^ 1
	_, err = store.Apply(t.Context(), driver.Batch{Put: []redrive.Entry{{Message: m, State: redrive.StateWaiting, Checksum: &sum}}})
	if err := errors.Join(err, store.Close()); err != nil {
		t.Fatal(err)
	}
	b.expect(exitOK, `"corrupt": 1`, "copy", "--from", from, "--to", to, "--json")
	b.expect(exitFailed, "do not match their checksum, for instance flipped", "verify", "--scan", "--data", to)
}

// A copy takes along what the store knows of queues and what people paused, once, and says what it
// leaves.
func TestCopyTakesSettingsAndPausesAlong(t *testing.T) {
	b := newBench(t)
	from, to := fill(t, 1, 1), filepath.Join(t.TempDir(), "copy")
	settings := driver.QueueSettings{OrderByKey: true, DeadRelease: true, Remember: time.Hour}
	in := func(dir string, do func(*sqlite.Store) error) {
		t.Helper()
		store, err := sqlite.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(do(store), store.Close()); err != nil {
			t.Fatal(err)
		}
	}
	pause := func(key, reason string) driver.Batch {
		return driver.Batch{Records: []driver.RecordWrite{{Space: "pauses", Key: key, Value: []byte(`{"queue":"q","reason":"` + reason + `"}`), Version: driver.AnyVersion, Expires: time.Hour}}}
	}
	in(from, func(s *sqlite.Store) error {
		_, err := s.Apply(t.Context(), pause("p", "by hand"))
		return errors.Join(err, s.Configure(t.Context(), "q", settings))
	})
	b.expect(exitOK, "with the settings of 1 queue and 1 pause; left behind:\n  ids of messages that ended", "copy", "--from", from, "--to", to)
	in(to, func(s *sqlite.Store) error {
		got, err := s.Settings(t.Context(), "q")
		if got != settings {
			t.Errorf("settings %+v", got)
		}
		r, rerr := s.GetRecord(t.Context(), "pauses", "p")
		if !strings.Contains(string(r.Value), "by hand") {
			t.Errorf("pause %q", r.Value)
		}
		_, perr := s.Apply(t.Context(), pause("p", "by another"))
		return errors.Join(err, rerr, perr, s.Configure(t.Context(), "q", driver.QueueSettings{Remember: time.Minute}))
	})
	b.expect(exitOK, "with the settings of 0 queues and 0 pauses; left behind:\n  the settings of q: the target has others", "copy", "--from", from, "--to", to)
	b.expect(exitFailed, "did you mean q?", "copy", "--from", from, "--to", to, "--queue", "p")
}

func TestDoctorAndTop(t *testing.T) {
	b := newBench(t)
	dir := fill(t, 3, 2)
	b.expect(exitOK, "2 dead letters", "doctor", "--data", dir)
	b.expect(exitOK, "it balances", "doctor", "--data", dir)
	b.expect(exitOK, `"level": "warn"`, "doctor", "--data", dir, "--json")
	b.kill("q", redrive.ReasonManual, "a")
	b.expect(exitOK, "is ready", "doctor")
	b.expect(exitOK, "DONE/S", "top", "-n", "1")
	b.expect(exitOK, `"done_per_second"`, "top", "--json", "--every", "100ms")
	b.tty = true
	if out := b.expect(exitOK, "DEAD", "top", "-n", "2", "--every", "100ms"); strings.Count(out, "\x1b[H") != 2 {
		t.Errorf("%q", out)
	}
}

func TestBench(t *testing.T) {
	b := newBench(t)
	b.expect(exitOK, "a handler that does nothing", "bench", "--messages", "300", "--size", "100B")
	b.expect(exitOK, `"published_per_second"`, "bench", "--messages", "50", "--json")
	b.expect(exitUsage, "--messages", "bench", "--messages", "0")
}

func TestPlansOfAPerson(t *testing.T) {
	b := newBench(t)
	b.kill("q", redrive.ReasonPermanent, "a", "b", "c")
	out := b.expect(exitOK, "", "dead", "redrive", "--queue", "q", "--canary", "2", "--json")
	var p wire.Plan
	if err := json.Unmarshal([]byte(out), &p); err != nil || p.Request.Canary != 2 || p.Canary == nil {
		t.Fatal(out, err)
	}
	b.expect(exitOK, "queue q", "plans", "show", p.ID)
	b.expect(exitOK, "running", "plan", "set", p.ID, "--rate", "5/s", "--canary", "1")
	b.expect(exitUsage, "say what to change", "plans", "set", p.ID)
	b.expect(exitOK, "running", "plans", "resume", p.ID, "--rate", "6/s")
	b.expect(exitOK, "6/s", "plans", "show", p.ID)
	b.expect(exitOK, "cancelled", "plans", "cancel", p.ID)
	b.expect(exitOK, "", "plans", "results", p.ID)
	b.expect(exitFailed, "cancelled", "plans", "show", p.ID, "--wait", "--json")
	b.expect(exitOK, "0 messages that wait for a retry would be due for a retry", "retry", "q", "--all", "--dry-run")
	b.expect(exitUsage, "say what of the queue", "retry", "q")
	b.expect(exitUsage, "say what of the queue", "retry", "q", "--all", "--kind", "k")
	b.expect(exitOK, "due for a retry", "retry", "q", "--cause", "2-4f1c09aa52de83b6", "--canary", "2", "--rate", "5/s", "--yes", "--wait")
	b.expect(exitUsage, "a canary needs a daemon", "dead", "redrive", "--queue", "q", "--canary", "2", "--data", fill(t, 0, 1))
}

func TestPlanBar(t *testing.T) {
	for _, c := range []struct {
		p    wire.Plan
		seen *wire.Progress
		rate float64
		want string
	}{
		{wire.Plan{Total: 1000, Done: 500, State: wire.PlanRunning, Request: wire.PlanRequest{Action: "redrive"}}, &wire.Progress{Delivered: 450, DeadAgain: 3, Waiting: 47}, 99.6,
			"[############............] 500 of 1,000 redriven (100/s); 450 delivered, 3 dead again, 47 waiting"},
		{wire.Plan{Total: 100, Done: 10, State: wire.PlanRunning, Canary: &wire.Canary{Stage: "canary", Size: 10, Delivered: 7, Waiting: 3}}, nil, 0,
			"[##......................] 10 of 100 redriven; canary of 10: 7 delivered, 0 dead again, 3 waiting"},
		{wire.Plan{Total: 20000, TotalMore: true, Done: 1, Failed: 2, State: wire.PlanPaused}, nil, 0, "1 of at least 20,000 redriven, 2 refused, paused"},
		{wire.Plan{Total: 2, Done: 5, State: wire.PlanRunning}, nil, 0, "[########################] 5 of 2 redriven"},
	} {
		if got := planBar(&c.p, c.seen, "redriven", c.rate, 100); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

// A misspelt name must not look like a success, and must not make a store.
func TestWhatIsNotThereIsSaid(t *testing.T) {
	b := newBench(t)
	b.kill("hooks", redrive.ReasonManual, "d-1")
	b.expect(exitFailed, "Queue not found", "queues", "purge", "hoks", "--yes")
	b.expect(exitOK, "1 message removed from hooks", "queues", "purge", "hooks", "--dead", "--yes")

	empty, target := t.TempDir(), filepath.Join(t.TempDir(), "target")
	missing := filepath.Join(empty, "missing")
	b.expect(exitFailed, "there is no store", "copy", "--from", missing, "--to", target)
	b.expect(exitFailed, "there is no store", "copy", "--from", empty, "--to", target)
	b.expect(exitFailed, "there is no store", "queues", "--data", empty)
	b.expect(exitFailed, "there is no store", "publish", "hooks", "x", "--data", missing)
	for _, dir := range []string{missing, target} {
		if _, err := os.Stat(dir); err == nil {
			t.Errorf("%s was made", dir)
		}
	}
	if files, err := os.ReadDir(empty); err != nil || len(files) > 0 {
		t.Errorf("%v %v", files, err)
	}
	s, err := sqlite.Open(missing)
	if err == nil {
		err = s.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	b.expect(exitFailed, "there is nothing in", "copy", "--from", missing, "--to", target)
}

func TestMessagesOfAllQueues(t *testing.T) {
	b := newBench(t)
	for _, queue := range []string{"a", "b", "c"} {
		if err := driver.FirstError(b.store.Publish(t.Context(), []redrive.Message{{Queue: queue, ID: "1"}, {Queue: queue, ID: "2", Kind: "k"}})); err != nil {
			t.Fatal(err)
		}
	}
	b.kill("b", redrive.ReasonManual, "d-1")
	out := b.expect(exitOK, "c/2", "messages", "list")
	if strings.Count(out, "\n") != 8 || !strings.Contains(out, "b/d-1") {
		t.Errorf("%s", out)
	}
	if out := b.expect(exitOK, "there are more", "messages", "list", "--limit", "3"); strings.Count(out, "\n") != 4 {
		t.Errorf("%s", out)
	}
	if out := b.expect(exitOK, "a/2", "messages", "list", "--kind", "k"); strings.Contains(out, "a/1") || !strings.Contains(out, "c/2") {
		t.Errorf("%s", out)
	}
	if out := b.expect(exitOK, "", "messages", "list", "--queue", "b", "--state", "dead"); strings.Contains(out, "b/") || !strings.Contains(out, "d-1") {
		t.Errorf("%s", out)
	}
}

// TestBlockedKeys: doctor names a key whose first message failed, not one whose first waits its turn.
func TestBlockedKeys(t *testing.T) {
	b := newBench(t)
	ctx := t.Context()
	if err := b.store.Configure(ctx, "q", driver.QueueSettings{OrderByKey: true}); err != nil {
		t.Fatal(err)
	}
	publish := func(key string, ids ...string) {
		for _, id := range ids {
			if err := driver.FirstError(b.store.Publish(ctx, []redrive.Message{{Queue: "q", ID: id, Key: key}})); err != nil {
				t.Fatal(err)
			}
		}
	}
	settle := func(s driver.Settlement) {
		ds, err := b.store.Claim(ctx, driver.ClaimRequest{Queue: "q", Max: 1, Lease: time.Minute, Instance: "test"})
		if err != nil || len(ds) != 1 {
			t.Fatal(ds, err)
		}
		s.Receipt, s.Failure = ds[0].Receipt, &redrive.Failure{Message: "no such customer", Attempt: 1}
		if err := driver.FirstError(b.store.Settle(ctx, []driver.Settlement{s})); err != nil {
			t.Fatal(err)
		}
	}
	publish("retried", "r-1", "r-2", "r-3")
	settle(driver.Settlement{Outcome: redrive.OutcomeRetry, After: time.Hour})
	publish("dead", "d-1", "d-2")
	settle(driver.Settlement{Outcome: redrive.OutcomeDead, Reason: redrive.ReasonPermanent})
	publish("fine", "f-1", "f-2")
	out := b.expect(exitOK, `key "retried" is blocked: 2 messages wait behind r-1, which failed 1 times and is tried again in `, "doctor")
	if !strings.Contains(out, `key "dead" is blocked: 1 messages wait behind d-1, which is dead: no such customer`) || !strings.Contains(out, "redrive or drop it: redrive show q/d-1") || strings.Contains(out, `"fine"`) {
		t.Errorf("%s", out)
	}
	if out := b.expect(exitOK, "BLOCKED", "queues"); !strings.Contains(strings.Join(strings.Fields(out), " "), "q 6 1 1 4 0 1") {
		t.Errorf("%s", out)
	}
}

// TestWhatHoldsIsSaid in the table of queues and by doctor, worst first where it matters.
func TestWhatHoldsIsSaid(t *testing.T) {
	now := time.Now()
	since, until, fresh := now.Add(-2*time.Minute), now.Add(10*time.Minute+500*time.Millisecond), now.Add(-time.Second)
	for want, h := range map[string]wire.Hold{
		"\x1b[33mpaused by olga since 2m00s, until in 10m00s: lunch": {What: wire.HoldPause, By: "olga", Since: &since, Until: &until, Detail: "lunch"},
		"\x1b[31mhttps://t breaker open since 2m00s: 9 of 10 failed": {What: wire.HoldBreaker, Target: "https://t", Since: &since, Detail: "9 of 10 failed"},
		"\x1b[33mrate since 2m00s: used up":                          {What: wire.HoldRate, Since: &since, Detail: "used up"},
		"\x1b[mslots since 1s: all":                                  {What: wire.HoldSlots, Since: &fresh, Detail: "all"},
		"\x1b[31mfull: publishing is refused: the disk is full":      {What: wire.HoldDisk, Detail: "the disk is full"},
		"\x1b[31msource unavailable since 2m00s: no answer":          {What: wire.HoldSource, Since: &since, Detail: "no answer"},
	} {
		text, colour := queueState(&wire.Queue{HeldBy: []wire.Hold{h}})
		if got := "\x1b[" + colour + "m" + text; got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestStateOfAQueueThatIsNotDelivered(t *testing.T) {
	now := time.Now()
	since := time.Date(2026, 11, 22, 3, 0, 0, 0, time.UTC)
	const refused = "every delivery has been refused since 2026-11-22T03:00:00Z: a wrong deploy?"
	if got, colour := queueState(&wire.Queue{Engine: &wire.QueueEngine{AllRefusedSince: &since}}); got != refused || colour != bad {
		t.Errorf("%q", got)
	}
	for want, q := range map[string]wire.Queue{
		"nobody consumes it":                        {},
		"workers pull from it":                      {Pull: &wire.QueuePull{Held: 1}},
		"workers pulled from it; none is there now": {Pull: &wire.QueuePull{}},
		refused:                         {Pull: &wire.QueuePull{Held: 1, AllRefusedSince: &since}},
		"paused by olga: lunch":         {Pull: &wire.QueuePull{Polls: 1}, HeldBy: []wire.Hold{{What: "pause", By: "olga", Detail: "lunch"}}},
		"results are read by their ids": {PolledAt: &now},
	} {
		if got, _ := queueState(&q); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestStateOfAQueueWithoutAHandler(t *testing.T) {
	q := &wire.Queue{Queue: "sms", Engine: &wire.QueueEngine{Unhandled: []wire.Unhandled{{Kind: "a"}, {Kind: "b\x1b"}, {Kind: "c"}, {Kind: "d"}}}}
	if state, colour := queueState(q); state != `no handler for kind "a", "b\x1b", "c" and 1 more` || colour != warn {
		t.Errorf("%s, %s", state, colour)
	}
	if hint := unhandledHint(q); !strings.Contains(hint, "deploy a handler") {
		t.Errorf("the doctor says %q", hint)
	}
	q = &wire.Queue{Queue: "sms", Pull: &wire.QueuePull{Polls: 1, Unhandled: q.Engine.Unhandled[:1]}}
	if state, colour := queueState(q); state != `no handler for kind "a"` || colour != warn || unhandledHint(q) == "" {
		t.Errorf("with workers: %s, %s", state, colour)
	}
}
