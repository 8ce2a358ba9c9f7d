package report_test

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/internal/daemon/report"
	"github.com/redrive/redrive/internal/wire"
	"github.com/redrive/redrive/plan"
)

// hostile is a text that would do something in Markdown, in HTML or on a terminal.
const hostile = "a|b `c` </code><script>alert(1)</script> ![x](https://evil.example) \x1b[31m\u202egnp\n# heading"

var at = time.Date(2026, 11, 22, 2, 41, 0, 0, time.UTC)

func sample() *wire.Report {
	later := at.Add(30 * time.Minute)
	return &wire.Report{
		Since: at, Until: at.Add(time.Hour), By: "oncall", Died: 23_049, DiedMore: true, Dead: 5_003, CausesDied: 2, CausesDead: 2,
		Causes: []wire.ReportCause{
			{Cause: wire.Cause{Queue: "orders", Reason: redrive.ReasonPermanent, Signature: "2-aac077d2", First: at, Last: later}, Died: 18_047},
			{Cause: wire.Cause{Queue: "payments", Reason: redrive.ReasonExhausted, Signature: "2-beef", Count: 5_002, First: at, Last: later, Type: "delivery.TransportError", Message: hostile, Growing: true,
				State: wire.CauseAcknowledged, Life: &wire.CauseLife{Decided: wire.CauseAcknowledged, By: "ops", At: at, Note: hostile, Link: "https://incidents.example.com/812"}}, Died: 5_002, DiedMore: true},
			{Cause: wire.Cause{Queue: "hooks", Reason: redrive.ReasonPermanent, Signature: "2-cafe", Count: 1, First: at.Add(-time.Hour), Last: at.Add(-time.Hour), Status: 422, Answer: `{"error":"open"}`, Quiet: true}},
		},
		Plans: []wire.Plan{
			{ID: "5e2de", State: wire.PlanStopped, Actor: "oncall", Request: wire.PlanRequest{Action: "redrive", Reason: hostile, Filter: &wire.Filter{Queue: "orders", Signature: "2-aac077d2"}, Canary: 10}, Total: 18_047,
				Done: 10, Canary: &wire.Canary{Size: 10, DeadAgain: 7, Delivered: 3}, Progress: &wire.Progress{Delivered: 3, DeadAgain: 7, Complete: true}, Problem: "7 of the canary died again", CreatedAt: later},
			{ID: "77c1", State: wire.PlanDone, Actor: "oncall", Request: wire.PlanRequest{Action: "repair", Filter: &wire.Filter{Queue: "orders"}, Repair: []plan.Operation{{Op: "set", Path: "$.schema_version", Value: json.RawMessage("2")}}},
				Total: 18_047, TotalMore: true, Done: 18_046, Failed: 1, Errors: map[string]int64{"not-json": 1}, CreatedAt: at, EndedAt: &later},
		},
		Actions: []wire.AuditEntry{{At: later, Actor: hostile, Action: "plan redrive", Queue: "orders", Plan: "5e2de", Count: 18_047, Note: hostile, Outcome: "done"}},
		Ledger: wire.Verified{Queues: []wire.Audit{
			{Queue: "orders", Balanced: true, Dead: 1, Ledger: wire.Ledger{Entered: 18_048, Done: 18_047}},
			{Queue: "payments", Imbalance: -1, Dead: 5_002, Ledger: wire.Ledger{Entered: 5_001}, Problems: []string{hostile}},
		}},
	}
}

// Reports are written as the files say. With REDRIVE_UPDATE they are written anew.
func TestReports(t *testing.T) {
	empty := &wire.Report{Since: at, Until: at.Add(time.Hour), ActionsHidden: true, Ledger: wire.Verified{Balanced: true}}
	for name, c := range map[string]struct {
		write func(io.Writer, *wire.Report) error
		of    *wire.Report
	}{
		"report.md": {report.Markdown, sample()}, "report.html": {report.HTML, sample()}, "empty.md": {report.Markdown, empty},
	} {
		var b bytes.Buffer
		if err := c.write(&b, c.of); err != nil {
			t.Fatal(err)
		}
		file := filepath.Join("testdata", name)
		if os.Getenv("REDRIVE_UPDATE") != "" {
			if err := os.WriteFile(file, b.Bytes(), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if want, err := os.ReadFile(file); err != nil || !bytes.Equal(want, b.Bytes()) {
			t.Errorf("%s is not what the file says (%v); write it anew with REDRIVE_UPDATE=1:\n%s", name, err, b.String())
		}
		if s := b.String(); strings.ContainsAny(s, "\x1b\u202e") || strings.Contains(s, "\n# heading") || name == "report.html" && strings.Contains(s, "<script>") {
			t.Errorf("%s lets something through: %s", name, s)
		}
	}
}
