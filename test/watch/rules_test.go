package watch

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

const (
	rulesFile = "../../deploy/prometheus/rules.yaml"
	guide     = "../../docs/watching.md"
)

// rule is an alert of the file.
type rule struct {
	Alert       string            `yaml:"alert"`
	Expr        string            `yaml:"expr"`
	For         string            `yaml:"for"`
	Labels      map[string]string `yaml:"labels"`
	Annotations map[string]string `yaml:"annotations"`
}

// alerts returns the rules, and the file's text.
func alerts(t *testing.T) (all []rule, text string) {
	t.Helper()
	b, err := os.ReadFile(rulesFile)
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Groups []struct {
			Name  string `yaml:"name"`
			Rules []rule `yaml:"rules"`
		} `yaml:"groups"`
	}
	if err := yaml.UnmarshalWithOptions(b, &file, yaml.Strict()); err != nil {
		t.Fatal(err)
	}
	for _, g := range file.Groups {
		all = append(all, g.Rules...)
	}
	return all, string(b)
}

// TestRulesOnHistories has promtool play the histories.
func TestRulesOnHistories(t *testing.T) {
	tool := debian(t, "promtool")
	for _, args := range [][]string{{"check", "rules", "--lint=all", "--lint-fatal", rulesFile}, {"test", "rules", "histories.yaml"}} {
		if out, err := exec.CommandContext(t.Context(), tool, args...).CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	histories, err := os.ReadFile("histories.yaml")
	if err != nil {
		t.Fatal(err)
	}
	all, _ := alerts(t)
	for _, r := range all {
		if !strings.Contains(string(histories), r.Alert) {
			t.Errorf("no history has %s", r.Alert)
		}
	}
}

var (
	family  = regexp.MustCompile(`\bredrive_\w+`)
	heading = regexp.MustCompile(`(?m)^#+ (Redrive\w+)$`)
)

// TestRulesSayWhatToDo: each has a cause, a command and a place in the guide.
func TestRulesSayWhatToDo(t *testing.T) {
	text, err := os.ReadFile(guide)
	if err != nil {
		t.Fatal(err)
	}
	var guided []string
	for _, h := range heading.FindAllStringSubmatch(string(text), -1) {
		guided = append(guided, h[1])
	}
	all, _ := alerts(t)
	for i, r := range all {
		for _, name := range []string{"summary", "description", "command", "runbook_url"} {
			if r.Annotations[name] == "" {
				t.Errorf("%s has no %s", r.Alert, name)
			}
		}
		if s := r.Labels["severity"]; s != "critical" && s != "warning" {
			t.Errorf("%s: severity %q", r.Alert, s)
		}
		if url := r.Annotations["runbook_url"]; !strings.HasSuffix(url, "/docs/watching.md#"+strings.ToLower(r.Alert)) {
			t.Errorf("%s leads to %s", r.Alert, url)
		}
		if i >= len(guided) || guided[i] != r.Alert {
			t.Errorf("the guide does not have %s, or not in this order: %v", r.Alert, guided)
		}
	}
	if len(guided) > len(all) {
		t.Errorf("the guide has %v", guided[len(all):])
	}
}

// TestTheMetricsAreInTheDocs: what dashboards and alerts ask for is described.
func TestTheMetricsAreInTheDocs(t *testing.T) {
	var docs strings.Builder
	for _, page := range []string{"telemetry.md", "websocket.md", "guard.md"} {
		b, err := os.ReadFile("../../docs/" + page)
		if err != nil {
			t.Fatal(err)
		}
		docs.WriteString(string(b))
	}
	_, asked := alerts(t)
	for _, d := range read(t) {
		for i := range d.Panels {
			for _, q := range d.Panels[i].Targets {
				asked += "\n" + q.Expr
			}
		}
	}
	known := family.FindAllString(docs.String(), -1)
	missing := make(map[string]bool)
	for _, name := range family.FindAllString(asked, -1) {
		for _, end := range []string{"_bucket", "_sum", "_count"} {
			name = strings.TrimSuffix(name, end)
		}
		missing[name] = true
	}
	for _, name := range known {
		delete(missing, name)
	}
	for name := range missing {
		t.Errorf("no page of the docs has %s", name)
	}
}
