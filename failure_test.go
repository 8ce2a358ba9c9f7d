package redrive_test

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

func TestFailureClean(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.Custom(func(t *rapid.T) string {
			s := string(rapid.SliceOfN(rapid.Byte(), 0, 40).Draw(t, "bytes"))
			return strings.Repeat(s, rapid.SampledFrom([]int{1, 1, 1, 10, 1000}).Draw(t, "times"))
		})
		f := redrive.Failure{Message: text.Draw(t, "message"), Stack: text.Draw(t, "stack"), Host: text.Draw(t, "host"), TraceID: text.Draw(t, "trace"),
			Types:   rapid.SliceOfN(text, 0, 30).Draw(t, "types"),
			Config:  redrive.FailureConfig{Target: text.Draw(t, "target")},
			Details: rapid.MapOfN(text, text, 0, 50).Draw(t, "details")}
		f.Clean()
		check := func(s string, limit int) {
			if !utf8.ValidString(s) || strings.Contains(s, "\x00") || len(s) > limit {
				t.Fatalf("%d bytes, at most %d: %.100q", len(s), limit, s)
			}
		}
		check(f.Message, 4<<10)
		check(f.Stack, 16<<10)
		check(f.Host, 512)
		check(f.TraceID, 512)
		check(f.Config.Target, 512)
		for _, s := range f.Types {
			check(s, 256)
		}
		for k, v := range f.Details {
			check(k, 128)
			check(v, 4<<10)
		}
		if len(f.Types) > 16 || len(f.Details) > 32 {
			t.Fatalf("%d types, %d details", len(f.Types), len(f.Details))
		}
		again := f
		again.Clean()
		if diff := cmp.Diff(f, again); diff != "" {
			t.Fatal("a second time it changes: ", diff)
		}
		if diff := cmp.Diff(&f, driver.DecodeFailure(driver.EncodeFailure(&f)), emptyIsNil); diff != "" {
			t.Fatal("it does not survive its encoding: ", diff)
		}
	})
}

var emptyIsNil = cmp.FilterPath(func(p cmp.Path) bool { return true }, cmp.Options{
	cmp.FilterValues(func(a, b map[string]string) bool { return len(a)+len(b) == 0 }, cmp.Ignore()),
	cmp.FilterValues(func(a, b []string) bool { return len(a)+len(b) == 0 }, cmp.Ignore()),
})

func TestFailureCleanKeepsHeadAndTail(t *testing.T) {
	f := redrive.Failure{Message: "head " + strings.Repeat("ä", 10_000) + " tail"}
	f.Clean()
	if !strings.HasPrefix(f.Message, "head ") || !strings.HasSuffix(f.Message, " tail") || len(f.Message) > 4<<10 || len(f.Message) < 4<<10-8 {
		t.Errorf("%d bytes: %.20q", len(f.Message), f.Message)
	}
}

func TestHistoryKeepsFirstAndLast(t *testing.T) {
	var h redrive.History
	h.Record(nil, true)
	if h.Latest() != nil || h.Count != 0 {
		t.Errorf("%+v", h)
	}
	for i := 1; i <= 5; i++ {
		h.Record(&redrive.Failure{Attempt: i, At: time.Unix(int64(i), 0)}, i != 3)
		if h.Latest().Attempt != i {
			t.Errorf("the latest is that of attempt %d", h.Latest().Attempt)
		}
	}
	if h.Count != 4 || h.First.Attempt != 1 || h.Last.Attempt != 5 {
		t.Errorf("%+v", h)
	}
}

func TestFailureCleanKeepsDetailsWhoseNamesItChanges(t *testing.T) {
	for range 50 { // the order of a map is random
		f := redrive.Failure{Details: make(map[string]string)}
		for i := range 32 {
			f.Details[fmt.Sprintf("name %d\x00", i)] = "v"
		}
		f.Clean()
		if len(f.Details) != 32 {
			t.Fatalf("of 32 details %d are left", len(f.Details))
		}
	}
}
