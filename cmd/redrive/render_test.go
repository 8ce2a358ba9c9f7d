package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/wire"
)

// golden compares an output with its file; with REDRIVE_UPDATE it is written anew.
func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if os.Getenv("REDRIVE_UPDATE") != "" {
		if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if want, err := os.ReadFile(file); err != nil || string(want) != got {
		t.Errorf("%s is not what its file says (%v); write it anew with REDRIVE_UPDATE=1:\n%s", name, err, got)
	}
}

// fits reports lines that are wider than a terminal, or hold what it would act on.
func fits(t *testing.T, width int, out string) {
	t.Helper()
	for line := range strings.Lines(out) {
		line = strings.TrimSuffix(line, "\n")
		if columns(line) > width {
			t.Errorf("%d columns are more than %d: %s", columns(line), width, line)
		}
		if clean(line) != line {
			t.Errorf("%q reaches the terminal", line)
		}
	}
}

// What others chose: long, wide, and hostile.
const (
	longName = "orders.europe-west.production.priority-customers.v2_long-name-of"
	wideText = "在庫がありません。商品コードを確認してください \x1b[31m\u202eevil e\u0301 — 422 Unprocessable Entity from the warehouse"
)

func someCauses() []wire.Cause {
	now := time.Now()
	return []wire.Cause{
		{Queue: "orders", Reason: redrive.ReasonPermanent, Signature: "2-4f1c09aa52de83b6", Count: 18_047, First: now.Add(-time.Hour), Last: now.Add(-2 * time.Second), Example: "orders/01a20720-be76-7382-a36e-2ecb356a0192",
			Status: 422, Answer: `{"error":"schema_version is required"}`, PerMinute: 410, Growing: true},
		{Queue: longName, Reason: redrive.ReasonExhausted, Signature: "2-00000000deadbeef", Count: 3, First: now.Add(-time.Hour), Last: now.Add(-25 * time.Hour), Example: longName + "/" + strings.Repeat("x", 128),
			Type: "warehouse.StockError", Message: wideText, State: wire.CauseRegressed, RegressedOn: "v1.4.2-rc.1+build.20261122"},
	}
}

// Causes and lists fit the terminal, whatever others named things.
func TestCausesAndListsFit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, width := range []int{0, 40, 80, 200} {
			var out bytes.Buffer
			term := &terminal{out: &out, err: &out, width: width}
			printCauses(term, someCauses())
			b := newTable("MESSAGE", "KIND", "REASON", "ATTEMPTS", "DIED", "ERROR")
			for _, name := range []string{"orders/01a20720-be76-7382-a36e-2ecb356a0192", longName + "/" + strings.Repeat("y", 128)} {
				b.add(text(name), text("github.pull_request_review_comment"), coloured(bad, "permanent"), number(12), text("5s ago"), text(wideText))
			}
			b.print(term)
			golden(t, fmt.Sprintf("lists-%d.txt", width), out.String())
			if width > 0 {
				fits(t, width, out.String())
			}
		}
	})
}

func TestColumnsOfText(t *testing.T) {
	for s, want := range map[string]int{"": 0, "abc": 3, "äöü": 3, "e\u0301": 1, "日本": 4, "ｆ": 2, "✓": 1, "🚀": 2, "…": 1} {
		if got := columns(s); got != want {
			t.Errorf("%q takes %d columns, not %d", s, got, want)
		}
	}
	for _, c := range []struct {
		in   string
		most int
		want string
	}{{"abcdef", 4, "abc…"}, {"日本語", 4, "日…"}, {"日本語", 6, "日本語"}, {"e\u0301e\u0301e\u0301", 2, "e\u0301…"}, {"abc", 0, "abc"}} {
		if got := shorten(c.in, c.most); got != c.want {
			t.Errorf("%q in %d columns is %q", c.in, c.most, got)
		}
	}
}

// Progress is one line at every width, also while the terminal is resized, and a line every 10 s where
// there is none.
func TestProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		width := 40
		term := &terminal{err: &out, errTTY: true, errSize: func() int { return width }}
		p := &progress{t: term}
		plan := &wire.Plan{Total: 18_047, Done: 6_858, Request: wire.PlanRequest{Action: "redrive"}}
		seen := &wire.Progress{Delivered: 6_833, Waiting: 25}
		for _, width = range []int{40, 200, 80, 20, 0} {
			p.update("%s", planBar(plan, seen, "redriven 日本語", 96, term.errWidth()))
			<-time.After(progressEvery)
		}
		p.clear()
		lines := strings.Split(out.String(), "\r\x1b[K")
		golden(t, "progress.txt", strings.Join(lines, "\n"))
		for i, most := range []int{40, 200, 80, 20, 80} {
			if got := columns(lines[i+1]); got >= most || strings.Contains(lines[i+1], "\n") {
				t.Errorf("%d columns of %d: %q", got, most, lines[i+1])
			}
		}

		out.Reset()
		p = &progress{t: &terminal{err: &out}}
		for i := range 126 {
			p.update("%d", i)
			<-time.After(pollEvery)
		}
		p.clear()
		if out.String() != "50\n100\n" {
			t.Errorf("in a pipe: %q", out.String())
		}
	})
}

// A dead letter begins with what happened and what the target answered; nothing of it is there twice.
func TestDeadShow(t *testing.T) {
	utc(t)
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		body, reason, size := `{"id":12345678901234567890,"price":1.50,"note":"`+"\u202e"+`","items":[{"sku":"a"}]}`, redrive.ReasonPermanent, 80
		failure := func(attempt int, message, answer string) *wire.Failure {
			return &wire.Failure{At: now.Add(time.Duration(attempt) * time.Minute), Duration: wire.Duration(41 * time.Millisecond), Attempt: attempt, Reason: &reason, Types: []string{"delivery.ResponseError"}, Message: message,
				Host: "vm-1", IP: "10.0.0.7", PID: 7, Service: "shop", Version: "v1", Environment: "production", Config: wire.FailureConfig{Target: "https://orders.example", Policy: "default", MaxAttempts: 12},
				TraceID: fmt.Sprint("trace-", attempt), Signature: "2-4f1c09aa52de83b6", Details: map[string]string{driver.DetailStatus: "422", driver.DetailAnswer: answer, "error": "a worker's \x1b[31mown"}}
		}
		m := &wire.Message{Queue: "orders", ID: "a-1", Kind: "order", State: "dead", Attempts: 3, Reason: &reason, PublishedAt: &now, DiedAt: &now, Body: &body, Size: &size,
			Headers: []wire.Header{{Name: "content-type", Value: []byte("application/json")}},
			History: &wire.History{Count: 3, First: failure(1, "the target answered 503 Service Unavailable", "busy"), Last: failure(3, "the target answered 422 Unprocessable Entity", `{"error":"schema_version is required"}`)}}
		var out bytes.Buffer
		printMessage(&terminal{out: &out}, m)
		m.History = &wire.History{Count: 1, First: m.History.Last}
		m.Headers = nil
		out.WriteString("\n---\n\n")
		printMessage(&terminal{out: &out}, m)
		golden(t, "deadshow.txt", out.String())
		whole, single, _ := strings.Cut(out.String(), "---")
		for once, in := range map[string]string{"schema_version is required": single, "422 Unprocessable": single, "vm-1": whole, "503 Service": whole, "https://orders.example": whole, "a worker's": whole} {
			if n := strings.Count(in, once); n != 1 {
				t.Errorf("%q is there %d times:\n%s", once, n, in)
			}
		}
		fits(t, 1000, strings.ReplaceAll(out.String(), "\t", ""))
	})
}

// utc lets times show the same everywhere.
func utc(t *testing.T) {
	was := time.Local
	time.Local = time.UTC
	t.Cleanup(func() { time.Local = was })
}

// Top shows queues, then the causes that came back or grow, then the plans that work or wait.
func TestTop(t *testing.T) {
	utc(t)
	synctest.Test(t, func(t *testing.T) {
		v := topView{Causes: someCauses(), Plans: []wire.Plan{
			{ID: "5e2de", State: wire.PlanStopped, Problem: "7 of the canary died again: " + wideText, Request: wire.PlanRequest{Action: "redrive", Filter: &wire.Filter{Queue: "orders"}}, Total: 18_047, Done: 10},
			{ID: "77c1", State: wire.PlanRunning, Request: wire.PlanRequest{Action: "repair", Filter: &wire.Filter{Queue: longName}}, Total: 18_047, Done: 6_858},
		}}
		v.Items = []queueRates{{Queue: wire.Queue{Queue: "orders", Dead: 18_047}, In: 120, Done: 3.25}, {Queue: wire.Queue{Queue: longName}}}
		for _, width := range []int{80, 160} {
			var out bytes.Buffer
			if err := v.print(&terminal{out: &out, width: width}, "http://127.0.0.1:7333"); err != nil {
				t.Fatal(err)
			}
			golden(t, fmt.Sprintf("top-%d.txt", width), out.String())
			fits(t, width, out.String())
		}
	})
}

// Top says that it did not look at all causes.
func TestTopOfManyCauses(t *testing.T) {
	var out bytes.Buffer
	v := topView{Causes: someCauses(), Looked: 1000}
	if err := v.print(&terminal{out: &out, width: 80}, "here"); err != nil || !strings.Contains(out.String(), "of the 1,000 largest causes: there are more\n") {
		t.Errorf("%s %v", out.String(), err)
	}
}

// What came back is first, then what grows; a plan that ended is not there.
func TestTopOfAStore(t *testing.T) {
	b := newBench(t)
	b.kill("q", redrive.ReasonExhausted, "a", "b")
	b.expect(exitOK, "1 of 1 dropped", "dead", "drop", "q/b", "--yes", "--wait")
	if out := b.expect(exitOK, "sick", "top", "-n", "1"); strings.Contains(out, "dropped") {
		t.Errorf("%s", out)
	}
	var v topView
	if err := json.Unmarshal([]byte(b.expect(exitOK, "", "top", "-n", "1", "--json")), &v); err != nil || len(v.Items) != 1 || len(v.Causes) != 1 || v.Causes[0].Count != 1 || len(v.Plans) != 0 {
		t.Errorf("%+v, %v", v, err)
	}
}
