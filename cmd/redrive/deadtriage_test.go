package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/redrive/redrive/internal/wire"
)

// Triage says what happened, what it looks like, what the messages have in common, and what to run.
func TestTriage(t *testing.T) {
	b := newBench(t)
	dir := fill(t, 0, 3)
	out := b.expect(exitOK, "UNCLEAR", "dead", "triage", "cafe", "--data", dir)
	for _, want := range []string{"cause cafe of queue q (permanent)", "3 dead", "error: no ", "0 delivered, 0 attempts failed", "1 kind in the sample", "a sample of 3 of 3", "100 %  k 100 %",
		"newest: q/d2\n  x\n", "  redrive dead show q/d2\n", "redrive dead redrive --queue q --signature cafe --canary 10 --wait"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is missing in:\n%s", want, out)
		}
	}
	if strings.Contains(out, "\x1b") {
		t.Errorf("an error's escape reaches the terminal: %q", out)
	}
	var all triage
	if err := json.Unmarshal([]byte(b.expect(exitOK, "", "dead", "triage", "cafe", "--data", dir, "--json")), &all); err != nil || all.Verdict.Verdict != wire.VerdictUnclear ||
		all.Cause.Count != 3 || all.Facets.Sample != 3 || all.Sample.ID != "d2" || len(all.Next) != 2 {
		t.Errorf("%+v, %v", all, err)
	}
	b.expect(exitOK, "cafe of queue q is acknowledged", "dead", "ack", "cafe", "--until", "2h", "--note", "vendor", "--data", dir)
	b.expect(exitOK, "acknowledged", "dead", "causes", "--state", "acknowledged", "--data", dir)
	b.expect(exitOK, "no cause is regressed", "dead", "causes", "--state", "regressed", "--data", dir)
	b.expect(exitUsage, "name its queue", "dead", "ack", "none", "--data", dir)
	b.expect(exitNone, "There is no such cause", "dead", "triage", "none", "--data", dir)
}
