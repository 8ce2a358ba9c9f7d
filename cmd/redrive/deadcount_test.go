package main

import (
	"testing"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/internal/wire"
)

// What is only counted in part says so, and names the command that counts it all.
func TestCountOfWhatNoCounterKnows(t *testing.T) {
	if testing.Short() {
		t.Skip("it looks through 20,500 messages, again and again")
	}
	b := newBench(t)
	dir := fill(t, 0, redrive.Examined+500)
	b.expect(exitOK, "20,500 dead letters", "dead", "count", "--text", "luck", "--data", dir)
	b.expect(exitOK, `"count": 20500`, "dead", "count", "--body", "x", "--data", dir, "--json")
	b.expect(exitOK, "count all: redrive dead count --body 'not there'", "dead", "causes", "--body", "not there", "--data", dir)
	b.expect(exitOK, "no dead letter matches", "dead", "causes", "--text", "not there", "--data", dir)
	b.expect(exitOK, "to count all: redrive dead count --queue q --body x", "dead", "redrive", "--queue", "q", "--body", "x", "--dry-run", "--data", dir)
	b.expect(exitOK, "20,500 were looked at one by one", "dead", "list", "--body", "not there", "--data", dir)
	b.expect(exitOK, `"how": "scan"`, "dead", "list", "--body", "not there", "--data", dir, "--json")
	b.expect(exitOK, `"how": "index"`, "dead", "list", "--text", "luck", "--limit", "1", "--data", dir, "--json")
	b.expect(exitOK, "how many there are: redrive dead count", "dead", "list", "--limit", "3", "--data", dir)
	b.expect(exitOK, "0 dead letters", "dead", "count", "--text", "not there", "--data", dir)
}

func TestFilterAsFlags(t *testing.T) {
	f := wire.Filter{Queue: "hooks", State: "dead", Text: "it's $HOME", Edited: "true", Since: "2026-01-02T15:04:05Z"}
	if got, want := flagsOf(&f), ` --queue hooks --since 2026-01-02T15:04:05Z --text 'it'\''s $HOME' --edited`; got != want {
		t.Errorf("%s\nwant%s", got, want)
	}
}
