package ui

import (
	"strings"
	"testing"
	"time"

	"github.com/redrive/redrive/internal/wire"
)

var noon = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

func TestNumbersAndTimes(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", -1000: "-1,000", -999: "-999", 10_000_000: "10,000,000"} {
		if got := number(n); got != want {
			t.Errorf("%d: %s", n, got)
		}
	}
	for ago, want := range map[time.Duration][2]string{
		0: {"12:00:00", "now"}, 41 * time.Second: {"11:59:19", "41s ago"}, 128 * time.Second: {"11:57:52", "2m08s ago"}, 5 * time.Hour: {"07:00:00", "5h00m ago"},
		72 * time.Hour: {"Nov 19 12:00", "3 days ago"}, 400 * 24 * time.Hour: {"2025-10-18", "400 days ago"}, -90 * time.Second: {"12:01:30", "in 1m30s"},
	} {
		if m := momentAt(noon.Add(-ago), noon); m.Short != want[0] || m.Ago != want[1] {
			t.Errorf("%s: %+v", ago, m)
		}
	}
	if m := momentAt(time.Time{}, noon); m.ISO != "" || m.Short != "–" {
		t.Errorf("%+v", m)
	}
}

func TestVisible(t *testing.T) {
	for in, want := range map[string]string{
		"plain\n\té ⟨": "plain\n\té ⟨", "a\u202eb": "a⟨U+202E⟩b", "\u200b\ufeff\x1b": "⟨U+200B⟩⟨U+FEFF⟩⟨U+001B⟩", "\U000e0041": "⟨U+E0041⟩", "a\xffb": "a\ufffdb",
	} {
		if got := string(visible([]byte(in))); got != want {
			t.Errorf("%q: %q", in, got)
		}
	}
}

func TestCommand(t *testing.T) {
	f := wire.Filter{Queue: "orders", Text: "it's $HOME", Edited: "true"}
	if got := command(append([]string{"redrive", "dead", "list"}, filterFlags(&f)...)...); got != `redrive dead list --queue orders --text 'it'\''s $HOME' --edited` {
		t.Error(got)
	}
}

// What is edited in a page is saved in the form that it had.
func TestTyped(t *testing.T) {
	for _, c := range []struct{ before, typed, want string }{
		{`{"a":1}`, "{\r\n  \"a\": 1\r\n}", `{"a":1}`}, {`{"a": 1}`, "{\n  \"a\": 1\n}", `{"a": 1}`}, {`{"a": 1}`, "{\n  \"a\": 2\n}", `{"a":2}`},
		{"{\n\"a\": 1}", "{\n\"a\": 2}", "{\n\"a\": 2}"}, {"text", "text\r\nmore", "text\nmore"}, {`{"a":1}`, "{", "{"}, {`{"a":1e400}`, "{\n  \"a\": 1e400\n}", `{"a":1e400}`},
	} {
		if got := string(typed(c.typed, []byte(c.before))); got != c.want {
			t.Errorf("%q: %q, want %q", c.typed, got, c.want)
		}
	}
	body := "{\"a\":\"\u202e\U000e0041\"}"
	m := wire.Message{Body: &body}
	if text, why := editable(&m); why != "" || !strings.Contains(text, `\u202e\udb40\udc41`) {
		t.Errorf("%q %q", text, why)
	}
}

func TestHeadline(t *testing.T) {
	checked := ledgerLine{Balanced: true, Checked: momentAt(noon, noon)}
	for want, got := range map[string]string{
		"No dead letters · nothing is lost":                                         headline(0, 0, 0, 0, checked),
		"50,126 dead · 6 causes, 2 still growing · 1 target down · nothing is lost": headline(50_126, 6, 2, 1, checked),
		"1 dead · 1 cause, none growing · the ledger does not balance":              headline(1, 1, 0, 0, ledgerLine{Checked: momentAt(noon, noon)}),
		"1 dead · 1 cause, none growing":                                            headline(1, 1, 0, 0, ledgerLine{}),
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestStages(t *testing.T) {
	for state, want := range map[string]string{wire.PlanRunning: "done now -", wire.PlanStopped: "done bad -", wire.PlanDone: "done done done"} {
		var got []string
		for _, s := range stagesOf(&wire.Plan{State: state, Canary: &wire.Canary{Stage: "ramp", Size: 10, Delivered: 10}}) {
			if s.Class == "" {
				s.Class = "-"
			}
			got = append(got, s.Class)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %q", state, got)
		}
	}
}

func TestRateOf(t *testing.T) {
	for delivered, want := range map[int64]string{0: rateDefault, 60: rateDefault, 60 * 40: "10/s", 60 * 4000: rateDefault} {
		if got := rateOf(&wire.Series{Minutes: []wire.Minute{{Delivered: delivered}, {}}}); got != want {
			t.Errorf("%d: %s, want %s", delivered, got, want)
		}
	}
}

func TestSpark(t *testing.T) {
	got := string(spark([]int64{0, 1, 100}, `"x"`))
	if strings.Count(got, "z") != 2 || !strings.Contains(got, "&#34;x&#34;") || spark(nil, "") != "" {
		t.Error(got)
	}
	if c := columns([]int64{1, 2, 3, 4, 5}, 2); len(c) != 2 || c[0] != 6 || c[1] != 9 {
		t.Error(c)
	}
}
