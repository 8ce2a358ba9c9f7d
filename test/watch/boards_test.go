package watch

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const boardsDir = "../../deploy/grafana"

// dashboard is what Grafana imports, as far as we use it.
type dashboard struct {
	UID           string         `json:"uid"`
	Title         string         `json:"title"`
	Description   string         `json:"description"`
	Tags          []string       `json:"tags"`
	SchemaVersion int            `json:"schemaVersion"`
	Editable      bool           `json:"editable"`
	GraphTooltip  int            `json:"graphTooltip"`
	Refresh       string         `json:"refresh"`
	Time          map[string]any `json:"time"`
	Links         []any          `json:"links"`
	Templating    struct {
		List []variable `json:"list"`
	} `json:"templating"`
	Panels []element `json:"panels"`
}

type variable struct {
	Name       string         `json:"name"`
	Label      string         `json:"label"`
	Type       string         `json:"type"`
	Datasource *source        `json:"datasource,omitempty"`
	Query      any            `json:"query"`
	Definition string         `json:"definition,omitempty"`
	Refresh    int            `json:"refresh"`
	Sort       int            `json:"sort,omitempty"`
	Multi      bool           `json:"multi,omitempty"`
	IncludeAll bool           `json:"includeAll,omitempty"`
	AllValue   string         `json:"allValue,omitempty"`
	Current    map[string]any `json:"current"`
}

type source struct {
	Type string `json:"type"`
	UID  string `json:"uid"`
}

// prometheus is the data source that the reader chooses.
var prometheus = &source{"prometheus", "${datasource}"}

// element is a panel, or the heading of a row.
type element struct {
	ID          int            `json:"id"`
	Type        string         `json:"type"`
	Title       string         `json:"title"`
	Description string         `json:"description,omitempty"`
	Datasource  *source        `json:"datasource,omitempty"`
	Grid        grid           `json:"gridPos"`
	FieldConfig map[string]any `json:"fieldConfig,omitempty"`
	Options     map[string]any `json:"options,omitempty"`
	Targets     []asking       `json:"targets,omitempty"`
	Collapsed   *bool          `json:"collapsed,omitempty"`
	Panels      []element      `json:"panels,omitempty"`
}

type grid struct{ H, W, X, Y int }

// MarshalJSON writes the names as Grafana has them.
func (g grid) MarshalJSON() ([]byte, error) {
	return fmt.Appendf(nil, `{"h":%d,"w":%d,"x":%d,"y":%d}`, g.H, g.W, g.X, g.Y), nil
}

type asking struct {
	RefID      string  `json:"refId"`
	Datasource *source `json:"datasource"`
	Expr       string  `json:"expr"`
	Legend     string  `json:"legendFormat,omitempty"`
	EditorMode string  `json:"editorMode"`
	Range      bool    `json:"range"`
	Instant    bool    `json:"instant"`
	Format     string  `json:"format"`
}

var placeholders = strings.NewReplacer("<job>", `job=~"$job"`, "<queue>", `job=~"$job", queue=~"$queue"`, "<guard>", `job=~"$job", guard=~"$guard"`, "[w]", "[$__rate_interval]")

func chosen(name, label, of string) variable {
	values := "label_values(" + of + ", " + name + ")"
	return variable{Name: name, Label: label, Type: "query", Datasource: prometheus, Query: map[string]any{"query": values, "refId": name}, Definition: values,
		Refresh: 2, Sort: 1, Multi: true, IncludeAll: true, AllValue: ".+", Current: map[string]any{"text": "All", "value": "$__all"}}
}

// dashboard lays the panels out.
func (b *board) dashboard() *dashboard {
	d := &dashboard{UID: "redrive-" + b.name, Title: b.title, Description: b.says, Tags: []string{"redrive"}, SchemaVersion: 39, Editable: true, GraphTooltip: 1,
		Refresh: "30s", Time: map[string]any{"from": "now-1h", "to": "now"},
		Links: []any{map[string]any{"type": "dashboards", "title": "Redrive", "tags": []string{"redrive"}, "asDropdown": true, "includeVars": true, "keepTime": true}}}
	d.Templating.List = []variable{
		{Name: "datasource", Label: "Data source", Type: "datasource", Query: "prometheus", Refresh: 1, Current: map[string]any{}},
		chosen("job", "Job", "redrive_store_up"),
	}
	if b.by != "" {
		d.Templating.List = append(d.Templating.List, chosen(b.by, strings.ToUpper(b.by[:1])+b.by[1:], b.values+`{job=~"$job"}`))
	}
	at, open := grid{}, false
	add := func(e *element, w, h int) {
		if at.X+w > 24 {
			at.X, at.Y = 0, at.Y+at.H
		}
		at.W, at.H = w, h
		e.ID, e.Grid = len(d.Panels)+1, at
		d.Panels = append(d.Panels, *e)
		at.X += w
	}
	for _, r := range b.rows {
		at.X = 24
		add(&element{Type: "row", Title: r.title, Collapsed: &open}, 24, 1)
		for i := range r.panels {
			add(r.panels[i].element(), r.panels[i].width, r.height)
		}
	}
	return d
}

func (p *panel) element() *element {
	e := &element{Type: p.kind, Title: p.title, Description: p.says}
	if p.kind == note {
		e.Options = map[string]any{"mode": "markdown", "content": p.queries[0].expr}
		return e
	}
	e.Datasource = prometheus
	steps := []any{map[string]any{"color": "green", "value": nil}}
	if p.bad != "" {
		steps = append(steps, map[string]any{"color": "red", "value": json.Number(p.bad)})
	}
	if p.bad == "0" { // none is bad
		steps = []any{map[string]any{"color": "red", "value": nil}, map[string]any{"color": "green", "value": 1}}
	}
	defaults := map[string]any{"unit": p.unit, "min": 0, "thresholds": map[string]any{"mode": "absolute", "steps": steps}}
	switch p.kind {
	case lines:
		defaults["custom"] = map[string]any{"drawStyle": "line", "lineWidth": 1, "fillOpacity": 10, "showPoints": "never"}
		e.Options = map[string]any{"legend": map[string]any{"displayMode": "list", "placement": "bottom", "showLegend": true}, "tooltip": map[string]any{"mode": "multi", "sort": "desc"}}
	case number:
		e.Options = map[string]any{"colorMode": "value", "graphMode": "area", "reduceOptions": map[string]any{"calcs": []string{"lastNotNull"}}}
	case rows:
		e.Options = map[string]any{"showHeader": true}
	}
	e.FieldConfig = map[string]any{"defaults": defaults, "overrides": []any{}}
	for i, query := range p.queries {
		t := asking{RefID: string(rune('A' + i)), Datasource: prometheus, Expr: placeholders.Replace(query.expr), Legend: query.legend, EditorMode: "code", Range: true, Format: "time_series"}
		if p.kind == rows {
			t.Range, t.Instant, t.Format = false, true, "table"
		}
		e.Targets = append(e.Targets, t)
	}
	return e
}

// TestDashboardsAreWritten: the files are what the tables of this package say.
func TestDashboardsAreWritten(t *testing.T) {
	for i := range boards {
		var want bytes.Buffer
		enc := json.NewEncoder(&want)
		enc.SetEscapeHTML(false)
		enc.SetIndent("", "  ")
		if err := enc.Encode(boards[i].dashboard()); err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(boardsDir, boards[i].name+".json")
		if os.Getenv("REDRIVE_UPDATE") != "" {
			if err := os.WriteFile(file, want.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := os.ReadFile(file); err != nil || !bytes.Equal(got, want.Bytes()) {
			t.Errorf("%s is not what panels_test.go says (%v): REDRIVE_UPDATE=1 go test ./test/watch -run Written", file, err)
		}
	}
}

// read reads the dashboards as Grafana would.
func read(t *testing.T) (all []dashboard) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(boardsDir, "*.json"))
	if err != nil || len(files) != len(boards) {
		t.Fatalf("%v, %v", files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var d dashboard
		dec := json.NewDecoder(bytes.NewReader(text))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&d); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		all = append(all, d)
	}
	return all
}

var (
	units    = []string{count, seconds, share, size, each}
	uses     = regexp.MustCompile(`\$(\w+)`)
	counters = regexp.MustCompile(`\b(rate|increase)\(\w+(\{[^}]*\})?\[([^\]]+)\]`)
	total    = regexp.MustCompile(`\bredrive_\w+_total\b`)
)

// TestDashboards: what Grafana 11 and later need of an import.
func TestDashboards(t *testing.T) {
	seen := make(map[string]bool)
	for _, d := range read(t) {
		if d.SchemaVersion < 39 || d.UID == "" || len(d.UID) > 40 || seen[d.UID] || seen[d.Title] || d.Description == "" {
			t.Errorf("%q, %q: schema %d, or it has no name of its own", d.UID, d.Title, d.SchemaVersion)
		}
		seen[d.UID], seen[d.Title] = true, true
		known := []string{"__rate_interval"}
		for _, v := range d.Templating.List {
			known = append(known, v.Name)
		}
		if v := d.Templating.List[0]; v.Name != "datasource" || v.Type != "datasource" || v.Query != "prometheus" {
			t.Errorf("%s: the data source cannot be chosen: %+v", d.UID, v)
		}
		ids := make(map[int]bool)
		taken := make(map[[2]int]string)
		for i := range d.Panels {
			p := &d.Panels[i]
			at := d.UID + ": " + p.Title
			if p.ID == 0 || ids[p.ID] || p.Title == "" {
				t.Errorf("%s: its id is %d", at, p.ID)
			}
			ids[p.ID] = true
			p.fits(t, at, taken)
			p.speaks(t, at, known)
		}
	}
}

// fits checks the place of a panel, which no other may have.
func (e *element) fits(t *testing.T, at string, taken map[[2]int]string) {
	g := e.Grid
	if g.H < 1 || g.W < 1 || g.X < 0 || g.X+g.W > 24 {
		t.Errorf("%s: it is at %+v", at, g)
	}
	for x := g.X; x < g.X+g.W; x++ {
		for y := g.Y; y < g.Y+g.H; y++ {
			if other := taken[[2]int{x, y}]; other != "" {
				t.Fatalf("%s is over %s", at, other)
			}
			taken[[2]int{x, y}] = at
		}
	}
}

// speaks checks what a panel says and asks.
func (e *element) speaks(t *testing.T, at string, known []string) {
	if e.Type == "row" {
		return
	}
	if e.Description == "" {
		t.Errorf("%s: it has no description", at)
	}
	if e.Type == note {
		return
	}
	defaults, _ := e.FieldConfig["defaults"].(map[string]any)
	if unit, _ := defaults["unit"].(string); !slices.Contains(units, unit) {
		t.Errorf("%s: its unit is %q", at, unit)
	}
	if e.Datasource == nil || *e.Datasource != *prometheus || len(e.Targets) == 0 {
		t.Errorf("%s: it asks %+v for %v", at, e.Datasource, e.Targets)
	}
	refs := make(map[string]bool)
	for _, q := range e.Targets {
		if refs[q.RefID] || q.RefID == "" || q.Datasource == nil || *q.Datasource != *prometheus || q.Range == q.Instant {
			t.Errorf("%s: %+v", at, q)
		}
		refs[q.RefID] = true
		if len(e.Targets) > 1 && q.Legend == "" {
			t.Errorf("%s: %s has no legend", at, q.Expr)
		}
		for _, used := range uses.FindAllStringSubmatch(q.Expr, -1) {
			if !slices.Contains(known, used[1]) {
				t.Errorf("%s: there is no variable %s", at, used[1])
			}
		}
		// The window follows the resolution; an hour in words is an hour.
		windows := counters.FindAllStringSubmatch(q.Expr, -1)
		for _, w := range windows {
			if w[3] != "$__rate_interval" && !strings.Contains(e.Title, "an hour") {
				t.Errorf("%s: a window of %s", at, w[3])
			}
		}
		if len(total.FindAllString(q.Expr, -1)) > len(windows) {
			t.Errorf("%s: a counter is shown as it is: %s", at, q.Expr)
		}
	}
}
