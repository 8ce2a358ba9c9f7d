package daemon_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/wire"
)

// An import refuses, line by line, what a publish refuses, and takes every line beside it.
func TestAnImportRefusesWhatAPublishRefuses(t *testing.T) {
	d := start(t, parse(t, "queues: {sms: {}}"), newStore(t))
	bad := []string{
		`"kind":"a\nb"`, `"key":"a\u0000b"`, fmt.Sprintf(`"key":%q`, strings.Repeat("k", redrive.MaxKeyLength+1)),
		`"headers":[["","v"]]`, `"headers":[["a\r\nb","v"]]`,
		`"attempts":3000000000`, `"generation":3000000000`, `"redrives":-1`, `"plan":"p\u0000"`, `"origin":"o\u0000"`,
		`"died_at":"9999-12-31T23:59:59-14:00"`, `"history":{"count":1,"first":{"at":"9999-12-31T23:59:59-14:00"}}`, `"history":{"count":-1}`,
		`"original":{"queue":"sms","id":"o","kind":"a\nb","body":"b"}`,
		`"reason":"oversize","headers":[["a\r\nb","v"]]`,
	}
	line := func(id, more string) string {
		if more != "" {
			more = "," + more
		}
		return fmt.Sprintf(`{"queue":"sms","id":%q,"state":"dead","reason":"manual","size":1,"body":"b"%s}`+"\n", id, more)
	}
	var lines strings.Builder
	for i, more := range bad {
		lines.WriteString(line(fmt.Sprintf("good%d", i), ""))
		lines.WriteString(line(fmt.Sprintf("bad%d", i), more))
	}
	lines.WriteString(line("last", `"history":{"count":2,"last":{"at":"2026-11-20T10:00:00Z","types":["x"],"message":"the last one"}}`))
	sum := get[wire.Imported](d, 200, http.MethodPost, "/v1/dead-letters", lines.String())
	if sum.Imported != int64(len(bad))+1 || sum.Failed != int64(len(bad)) {
		text, _ := json.MarshalIndent(sum, "", " ")
		t.Errorf("%d bad lines: %s", len(bad), text)
	}
	for _, p := range sum.Problems { // the store's own come after the line's
		if p.Line%2 != 0 || p.Error.Status != http.StatusBadRequest {
			t.Errorf("line %d: %v", p.Line, p.Error)
		}
	}
	m := get[wire.Message](d, 200, http.MethodGet, "/v1/queues/sms/dead-letters/last", "")
	if m.History.First == nil || m.History.First.Message != "the last one" || m.History.Last != nil || m.History.Count != 2 {
		t.Errorf("%+v", m.History)
	}
	huge := redrive.Entry{State: redrive.StateDead, Reason: redrive.ReasonOversize, Message: redrive.Message{Queue: "sms", ID: "huge", Body: make([]byte, redrive.MaxBodySize+1)}}
	for _, want := range []wire.Imported{{Imported: 1}, {Failed: 1}} {
		text, _ := json.Marshal(wire.Whole(&huge, true))
		if sum := get[wire.Imported](d, 200, http.MethodPost, "/v1/dead-letters", string(text)); sum.Imported != want.Imported || sum.Failed != want.Failed {
			t.Errorf("%s of 16 MiB and a byte: %+v", huge.Reason, sum)
		}
		huge.ID, huge.Reason = "huge2", redrive.ReasonManual
	}
}

// A line that was changed since it was exported is refused, unless it says that it is corrupt, or has no
// checksum; where something is masked there is none.
func TestAnImportFindsWhatWasChanged(t *testing.T) {
	store := newStore(t)
	d := start(t, parse(t, "queues: {sms: {}, masked: {mask: [$.pin]}}"), store)
	e := redrive.Entry{State: redrive.StateDead, Reason: redrive.ReasonManual, Message: redrive.Message{Queue: "sms", ID: "a", Body: []byte(`{"pin":"1234"}`)}}
	masked := e
	masked.Queue = "masked"
	if _, err := store.Apply(t.Context(), driver.Batch{Put: []redrive.Entry{e, masked}}); err != nil {
		t.Fatal(err)
	}
	_, line := d.send(http.MethodGet, "/v1/queues/sms/dead-letters/a", "")
	if !strings.Contains(string(line), `"crc32c":`) {
		t.Fatalf("%s", line)
	}
	if _, shown := d.send(http.MethodGet, "/v1/queues/masked/dead-letters/a", ""); strings.Contains(string(shown), "crc32c") || !strings.Contains(string(shown), "***") {
		t.Errorf("a masked body shows its checksum: %s", shown)
	}
	renamed := strings.Replace(string(line), `"id":"a"`, `"id":"%s"`, 1)
	changed := strings.Replace(renamed, "1234", "1235", 1)
	corrupt := strings.Replace(changed, `"manual"`, `"corrupt"`, 1)
	bare := regexp.MustCompile(`"crc32c":[0-9]+,?`).ReplaceAllString(changed, "")
	sum := get[wire.Imported](d, 200, http.MethodPost, "/v1/dead-letters",
		fmt.Sprintf(renamed, "as it is")+fmt.Sprintf(changed, "b")+fmt.Sprintf(renamed, "c")+fmt.Sprintf(corrupt, "d")+fmt.Sprintf(bare, "e"))
	if sum.Imported != 3 || sum.Failed != 2 || !strings.Contains(fmt.Sprint(*sum.Problems[1].Error), "crc32c") {
		t.Errorf("%+v", sum)
	}
	v := get[wire.Verified](d, 200, http.MethodGet, "/v1/verify?queue=sms&scan=true", "")
	if !v.Balanced || v.Queues[0].Corrupt != 1 {
		t.Errorf("%+v", v)
	}
}

// TestOneLineThatIsTooLong does not stop the lines beside it.
func TestOneLineThatIsTooLong(t *testing.T) {
	d := start(t, parse(t, "queues: {sms: {}}"), newStore(t))
	line := func(id string) string {
		return fmt.Sprintf(`{"queue":"sms","id":%q,"state":"dead","reason":"manual","size":1,"body":"b"}`+"\n", id)
	}
	long := `{"queue":"sms","id":"long","state":"dead","reason":"oversize","size":1,"body":"` + strings.Repeat("x", 48<<20) + "\"}\n"
	sum := get[wire.Imported](d, 200, http.MethodPost, "/v1/dead-letters?lines=true", line("a")+long+"\n"+line("b")+long+line("c"))
	var statuses []string
	for _, l := range sum.Lines {
		statuses = append(statuses, fmt.Sprint(l.Line, l.Status))
	}
	slices.Sort(statuses) // a batch is answered when it is in the store
	if want := "[1accepted 2error 4accepted 5error 6accepted]"; sum.Imported != 3 || sum.Failed != 2 || fmt.Sprint(statuses) != want {
		t.Errorf("%d imported, %d failed: %s, want %s", sum.Imported, sum.Failed, statuses, want)
	}
	if p := sum.Problems[0]; p.Line != 2 || p.Error.Status != http.StatusRequestEntityTooLarge || !strings.Contains(p.Error.Detail, "45263528 bytes") {
		t.Errorf("%+v", p.Error)
	}
}
