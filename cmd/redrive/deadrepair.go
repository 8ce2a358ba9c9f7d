package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/redrive/redrive/internal/wire"
	"github.com/redrive/redrive/plan"
)

// steps are operations of a repair, with their places on the command line.
type steps []placed

type placed struct {
	left int // words of the command line behind it
	plan.Operation
}

// repairFlags are a rule: a flag for each operation, in the order in which they stand there.
type repairFlags struct {
	Set       steps `type:"set" placeholder:"PATH=VALUE" help:"Set what is at a path such as $$.order.version to JSON, or else to text."`
	Remove    steps `type:"remove" placeholder:"PATH" help:"Remove what is at a path."`
	Rename    steps `type:"rename" placeholder:"PATH=NAME" help:"Rename the member at a path."`
	Replace   steps `type:"replace" placeholder:"PATH=/RE/TEXT/" help:"In texts at a path, replace what a regular expression (RE2) finds; $$1 is a group. Any character may stand for the slash."`
	SetHeader steps `type:"set-header" placeholder:"NAME=VALUE" help:"Set a header; NAME= alone removes it."`
	SetKind   steps `type:"set-kind" placeholder:"KIND" help:"Set the kind."`
}

// rule returns the operations as they stand on the command line.
func (f *repairFlags) rule() []plan.Operation {
	all := slices.Concat(f.Set, f.Remove, f.Rename, f.Replace, f.SetHeader, f.SetKind)
	slices.SortStableFunc(all, func(a, b placed) int { return cmp.Compare(b.left, a.left) })
	rule := make([]plan.Operation, len(all))
	for i := range all {
		rule[i] = all[i].Operation
	}
	return rule
}

// stepMapper reads a flag that is an operation.
type stepMapper func(text string) (plan.Operation, error)

// Decode implements kong.Mapper.
func (m stepMapper) Decode(ctx *kong.DecodeContext, target reflect.Value) error {
	left := ctx.Scan.Len()
	var text string
	if err := ctx.Scan.PopValueInto("value", &text); err != nil {
		return err
	}
	o, err := m(text)
	if err == nil {
		_, err = plan.NewRepair([]plan.Operation{o})
	}
	if err != nil {
		return err
	}
	target.Set(reflect.Append(target, reflect.ValueOf(placed{left, o})))
	return nil
}

func setStep(text string) (plan.Operation, error) {
	path, value, err := cutPath(text)
	if !json.Valid([]byte(value)) {
		value = string(jsonText(value))
	}
	return plan.Operation{Op: "set", Path: path, Value: json.RawMessage(value)}, err
}

func removeStep(text string) (plan.Operation, error) {
	return plan.Operation{Op: "remove", Path: text}, nil
}

func renameStep(text string) (plan.Operation, error) {
	path, name, err := cutPath(text)
	return plan.Operation{Op: "rename", Path: path, To: name}, err
}

func replaceStep(text string) (plan.Operation, error) {
	path, how, err := cutPath(text)
	if err != nil || how == "" {
		return plan.Operation{}, cmp.Or(err, fmt.Errorf("%q does not say what to replace: write PATH=/RE/TEXT/", text))
	}
	parts := strings.Split(strings.TrimSuffix(how[1:], how[:1]), how[:1])
	if len(parts) != 2 {
		return plan.Operation{}, fmt.Errorf("%q is not PATH=/RE/TEXT/: use a character that neither has, such as PATH=|RE|TEXT|", text)
	}
	return plan.Operation{Op: "replace", Path: path, Match: parts[0], With: parts[1]}, nil
}

func headerStep(text string) (plan.Operation, error) {
	name, value, ok := strings.Cut(text, "=")
	if !ok {
		return plan.Operation{}, fmt.Errorf("%q is not NAME=VALUE", text)
	}
	o := plan.Operation{Op: "header", Name: name}
	if value != "" {
		o.Value = jsonText(value)
	}
	return o, nil
}

func kindStep(text string) (plan.Operation, error) {
	return plan.Operation{Op: "kind", Value: jsonText(text)}, nil
}

func jsonText(s string) json.RawMessage {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err) // a string can always be encoded
	}
	return b
}

// cutPath cuts PATH=REST at the first = that is not within the path.
func cutPath(text string) (path, rest string, err error) {
	quoted := false
	for i := 0; i < len(text); i++ {
		switch {
		case text[i] == '\\' && quoted:
			i++
		case text[i] == '"':
			quoted = !quoted
		case text[i] == '=' && !quoted:
			return text[:i], text[i+1:], nil
		}
	}
	return "", "", fmt.Errorf("%q has no =", text)
}

type deadRepairCmd struct {
	planFlags   `embed:""`
	repairFlags `embed:""`
}

func (*deadRepairCmd) Help() string {
	return examples(
		"redrive dead repair --queue orders --signature 1-4f1c09aa52de83b6 --set '$.schema_version=2' --dry-run", "what it would change, by example",
		"redrive dead repair --queue orders --signature 1-4f1c09aa52de83b6 --set '$.schema_version=2' --wait", "change them; then redrive exactly these",
		"redrive dead repair orders/a-17 --rename '$.userid=user_id' --remove '$..debug'", "one, by several operations, in this order",
		"redrive dead repair --queue hooks --replace '$.url=|^http:|https:|'", "in texts, by a regular expression",
	)
}

// Run repairs dead letters.
func (c *deadRepairCmd) Run(ctx context.Context, t *terminal, client *client) error {
	rule := c.rule()
	if len(rule) == 0 {
		return usagef("say what to change: --set, --remove, --rename, --replace, --set-header or --set-kind")
	}
	return c.run(ctx, t, client, wire.PlanRequest{Action: "repair", Repair: rule}, "repaired", func(t *terminal, d *wire.DryRun) error {
		return c.ask(t, d, "Repair", "repaired")
	})
}

type deadRestoreCmd struct {
	remote  `embed:""`
	Plan    string `arg:"" name:"plan" help:"The plan that repaired them."`
	planHow `embed:""`
}

func (*deadRestoreCmd) Help() string {
	return examples(
		"redrive dead restore PLAN --dry-run", "how many are still dead and as the repair left them",
		"redrive dead restore PLAN --wait", "put back what was published, of these",
	)
}

// Run restores what a plan repaired.
func (c *deadRestoreCmd) Run(ctx context.Context, t *terminal, client *client) error {
	return c.carryOut(ctx, t, client, wire.PlanRequest{Action: "restore", Restore: c.Plan}, "restored", func(t *terminal, d *wire.DryRun) error {
		flags := planFlags{}
		return flags.ask(t, d, "Restore", "restored")
	})
}

// printRule prints what each operation does, with the type of its value.
func printRule(t *terminal, rule []plan.Operation) {
	for i := range rule {
		o := &rule[i]
		s := o.Op + " " + clean(o.Path+o.Name)
		switch o.Op {
		case "rename":
			s += " to " + clean(o.To)
		case "replace":
			s += fmt.Sprintf(" %s by %s", clean(jsonString(o.Match)), clean(jsonString(o.With)))
		case "remove":
		default:
			s += " " + typed(o.Value)
		}
		t.printf("  %d  %s\n", i+1, s)
	}
}

func jsonString(s string) string { return string(jsonText(s)) }

// typed names the type of a JSON value before it.
func typed(value json.RawMessage) string {
	if len(value) == 0 {
		return "(goes)"
	}
	kind := "number"
	switch value[0] {
	case '"':
		kind = "text"
	case '{':
		kind = "object"
	case '[':
		kind = "list"
	case 't', 'f':
		kind = "boolean"
	case 'n':
		return "to null"
	}
	return "to the " + kind + " " + clean(string(value))
}

// printPreview prints what a repair would make of a sample.
func printPreview(t *terminal, p *wire.Preview) {
	t.printf("\nof %s looked at, %s would change", grouped(int64(p.Looked)), grouped(int64(p.Changed)))
	if p.Changed > 0 {
		t.printf(" (by %+.0f bytes each)", float64(p.After-p.Before)/float64(p.Changed))
	}
	t.printf("\n")
	for _, kind := range slices.Sorted(maps.Keys(p.Refused)) {
		what := map[string]string{"unchanged": "would stay as they are: the rule finds nothing to change", "not-json": "are not JSON", "name-taken": "have a member of the new name", "masked": "would tell what is masked"}[kind]
		t.printf("  %s %s\n", grouped(int64(p.Refused[kind])), cmp.Or(what, "would be refused: "+clean(kind)))
	}
	for i := range p.Diffs {
		d := &p.Diffs[i]
		t.printf("\n%s\n", t.paint(strong, clean(d.Before.Queue+"/"+d.Before.ID)))
		printDiff(t, &d.Before, &d.After)
	}
}
