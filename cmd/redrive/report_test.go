package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/internal/wire"
)

func TestReportAndAudit(t *testing.T) {
	b := newBench(t)
	b.kill("q", redrive.ReasonExhausted, "a", "b", "c")
	b.expect(exitOK, "there is no such entry", "audit", "--since", "1h")
	b.expect(exitOK, "2 of 2 dropped", "dead", "drop", "q/a", "q/b", "--yes", "--wait")
	md := b.expect(exitOK, "# Report", "report", "--since", "1h")
	for _, want := range []string{"3 messages died, of 1 cause. 1 message still dead, of 1 cause.", "## Plan: drop, done", "- changed: 2 of 2", `\x1b[31mtarget`, "The ledger balances.", "`plan ended`"} {
		if !strings.Contains(md, want) {
			t.Errorf("%q is not in\n%s", want, md)
		}
	}
	b.expect(exitOK, "<!DOCTYPE html>", "report", "--html")
	var r wire.Report
	if err := json.Unmarshal([]byte(b.expect(exitOK, "", "report", "--json")), &r); err != nil || r.Died != 3 || r.Dead != 1 {
		t.Errorf("%+v, %v", r, err)
	}
	id := r.Plans[0].ID
	if md := b.expect(exitOK, id, "report", "--plan", id); strings.Count(md, "## Plan") != 1 {
		t.Errorf("%s", md)
	}
	b.expect(exitNone, "not", "report", "--plan", "none")

	out := b.expect(exitOK, "plan ended", "audit", "--plan", id)
	if !strings.Contains(out, "drop: 2 changed, 0 refused") || strings.Count(out, "\n") != 3 {
		t.Errorf("%s", out)
	}
	if out := b.expect(exitOK, "there are more", "audit", "--limit", "1"); strings.Count(out, "\n") != 2 {
		t.Errorf("%s", out)
	}
	var list wire.List[wire.AuditEntry]
	if err := json.Unmarshal([]byte(b.expect(exitOK, "", "audit", "--action", "plan drop", "--json")), &list); err != nil || len(list.Items) != 1 || list.Items[0].Count != 2 {
		t.Errorf("%+v, %v", list, err)
	}
	b.expect(exitOK, "there is no such entry", "audit", "--actor", "nobody")
}
