package main

import (
	"encoding/json"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/redrive/redrive"
)

// notFilters are fields of a query that no person filters by: its page, and what a plan
// leaves out by itself.
var notFilters = []string{"life", "after", "limit", "bodies", "not_plan", "shown", "errors_only"}

var inner = regexp.MustCompile(`([a-z])([A-Z])`)

func TestProgramAndAPIAndLibraryTakeTheSameFilters(t *testing.T) {
	var library []string
	for f := range reflect.TypeFor[redrive.Query]().Fields() {
		if name := strings.ToLower(inner.ReplaceAllString(f.Name, "${1}_${2}")); !slices.Contains(notFilters, name) {
			library = append(library, name)
		}
	}
	slices.Sort(library)
	same := func(what string, names []string, known ...string) {
		t.Helper()
		got := append(slices.Clone(known), names...)
		slices.Sort(got)
		if diff := cmp.Diff(library, got); diff != "" {
			t.Errorf("%s differs from redrive.Query (-): %s", what, diff)
		}
	}

	file, err := os.ReadFile("../../docs/openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Paths map[string]struct {
			Get struct {
				Parameters []struct{ Name, In string }
			}
		}
		Components struct {
			Schemas map[string]struct{ Properties map[string]any }
		}
	}
	if err := json.Unmarshal(file, &doc); err != nil {
		t.Fatal(err)
	}
	for path, known := range map[string][]string{"/v1/dead-letters": {"state", "retrying"}, "/v1/causes": {"state", "retrying"}, "/v1/queues/{queue}/messages": {"queue"}} {
		var names []string
		for _, p := range doc.Paths[path].Get.Parameters {
			if p.In == "query" && !slices.Contains(notFilters, p.Name) {
				names = append(names, p.Name)
			}
		}
		same("GET "+path, names, known...)
	}
	var names []string
	for name := range doc.Components.Schemas["Filter"].Properties {
		names = append(names, name)
	}
	same("the filter of a plan", names)

	b := newBench(t)
	flags := func(words string) (names []string) {
		for line := range strings.Lines(b.expect(exitOK, "--", append([]string{"__complete", "--"}, append(strings.Fields(words), "--")...)...)) {
			name, _, _ := strings.Cut(line, "\t")
			names = append(names, strings.ReplaceAll(strings.TrimPrefix(name, "--"), "-", "_"))
		}
		return names
	}
	others := append(flags("plans list"), "all", "limit", "output", "rate", "dry_run", "yes", "wait", "to", "new_id", "confirm_uncertain", "confirm_corrupt", "max_redrives", "canary", "watch", "id", "why")
	for _, words := range []string{"dead list", "dead causes", "dead export", "dead import", "dead redrive", "dead drop", "dead archive", "messages cancel", "messages list"} {
		known := []string{"state", "retrying"} // the command says it
		switch words {
		case "messages list":
			known = nil
		case "dead causes": // it has a flag --state of its own
			known = []string{"retrying"}
		}
		same("redrive "+words, slices.DeleteFunc(flags(words), func(name string) bool { return slices.Contains(others, name) }), known...)
	}
}

func TestFilterByPlanAndSignature(t *testing.T) {
	b := newBench(t)
	b.kill("q", redrive.ReasonExhausted, "a", "b")
	b.expect(exitOK, "redriven", "dead", "redrive", "q/a", "--yes")
	out := b.expect(exitOK, "", "plans", "list", "--json")
	var plans struct{ Items []struct{ ID string } }
	if err := json.Unmarshal([]byte(out), &plans); err != nil || len(plans.Items) != 1 {
		t.Fatalf("%v in %s", err, out)
	}
	plan := plans.Items[0].ID
	b.expect(exitOK, "a", "messages", "list", "--queue", "q", "--plan", plan)
	b.expect(exitOK, "there is none", "dead", "list", "--plan", plan)
	b.expect(exitOK, "b", "messages", "list", "--queue", "q", "--reason", "exhausted")
	b.expect(exitOK, "0 dead letters would be redriven", "dead", "redrive", "--plan", plan, "--dry-run")
	b.expect(exitOK, "there is none", "dead", "list", "--edited")
	b.expect(exitOK, "", "dead", "edit", "q/b", "--body", "mended")
	b.expect(exitOK, "b", "dead", "list", "--edited")
	b.expect(exitOK, "1 dead letter would be redriven", "dead", "redrive", "--queue", "q", "--edited", "--dry-run")
	b.expect(exitUsage, "use true, or leave it out", "dead", "list", "--edited=no")
}
