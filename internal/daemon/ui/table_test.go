package ui

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redrive/redrive/guard"
	"github.com/redrive/redrive/internal/wire"
)

// rowsOf is a table as text: chips and times as their words.
func rowsOf(p *tablePage) (all []string) {
	for _, row := range p.Rows {
		var b bytes.Buffer
		for i := range row {
			c := &row[i]
			if c.When != nil {
				b.WriteString(c.When.Short)
			}
			b.WriteString(c.Text + c.Chip.Word)
			if c.Small != "" {
				fmt.Fprintf(&b, " (%s)", c.Small)
			}
			b.WriteString(" | ")
		}
		all = append(all, strings.TrimSuffix(b.String(), " | "))
	}
	return all
}

func looksLike(t *testing.T, p tablePage, want ...string) {
	t.Helper()
	got := rowsOf(&p)
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestGuardsAndSessionsAsTables(t *testing.T) {
	guards := []wire.Guard{{Queue: "sms", Failovers: 3, Deferred: map[string]int64{"down": 1200, "full": 0}, Providers: []guard.Stats{
		{Provider: "one", State: "down", Reason: "error rate 60 %", Since: noon.Add(-time.Minute), Until: noon.Add(time.Minute), Share: 0.05, Demand: 12.34, InUse: 2, Refused: 7, Calls: map[string]int64{"success": 1000, "transient": 600}},
		{Provider: "two", State: "new", Since: noon, Share: 1},
	}}}
	looksLike(t, viewGuards(guards, noon),
		"one (queue sms) | down (error rate 60 %, until 12:01:00) | 11:59:00 | 5 % | 12.3 | 2 | 1,600 (transient 600) | 7 | down 1,200 (3 failovers)",
		"two (queue sms) | new | 12:00:00 | 100 % | 0.0 | 0 | 0 | 0 | ")
	sessions := []wire.Session{{ID: "s-1", Token: "app", Attached: true, Remote: "10.1.2.3:4", Epoch: 2, ConnectedAt: noon, SeenAt: noon, Unacked: 1, Outstanding: 2, Pushed: 3, Lost: 4}, {ID: "s-2", Epoch: 1}}
	looksLike(t, viewSessions(sessions, noon), "s-1 (token app) | connected here (2 connections) | 10.1.2.3:4 | 12:00:00 | 12:00:00 | 1 | 2 | 3 | 4", "s-2 | away (1 connection) |  | – | – | 0 | 0 | 0 | 0")
}

func TestTheConfigurationAsATable(t *testing.T) {
	raw := json.RawMessage(`{"hash":"ab","refused":"a restart is needed for store","refused_since":"2026-11-22T11:59:00Z","differs":true,"instances":[{"id":"i","host":"vm-1","pid":7,"version":"1","hash":"cd","started_at":"2026-11-22T11:00:00Z","refused_since":"2026-11-22T11:59:00Z"}],
		"z":1,"a":{"n":1000000000000000001,"list":[{"url":"***"},"x"],"none":{},"off":false,"nothing":null,"empty":[],"hash":"kept"}}`)
	p, err := viewConfig(raw, noon)
	if err != nil {
		t.Fatal(err)
	}
	looksLike(t, p, "z | 1", "a.n | 1000000000000000001", "a.list[0].url | ***", "a.list[1] | x", "a.none | {}", "a.off | false", "a.nothing | –", "a.empty | []", "a.hash | kept")
	notes := fmt.Sprint(p.Notes)
	for _, want := range []string{"not in force, since 1m00s ago: a restart is needed for store", "Not all daemons", "vm-1, process 7, version 1, configuration cd, started 1h00m ago, refuses its file since 11:59:00"} {
		if !strings.Contains(notes, want) {
			t.Errorf("%s lacks %q", notes, want)
		}
	}
	if _, err := viewConfig(json.RawMessage(`{"a":`), noon); err == nil {
		t.Error("half of a configuration was read")
	}
}
