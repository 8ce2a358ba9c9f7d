package config_test

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/redrive/redrive/internal/daemon/config"
)

var update = flag.Bool("update", false, "write docs/configuration.md")

const referenceFile = "../../../docs/configuration.md"

// TestReference compares docs/configuration.md with the types; -update writes it.
func TestReference(t *testing.T) {
	r := &reference{docs: typeDocs(t), seen: make(map[reflect.Type]bool)}
	r.out.WriteString(`# Configuration

The daemon reads one YAML file: ` + "`redrive serve --config redrive.yaml`" + `. Check it with
` + "`redrive config check redrive.yaml`" + `, which names every error with its line. Nothing is needed for a
first try: ` + "`redrive serve --deliver QUEUE=URL`" + `.

The check refuses what ` + "`redrive serve`" + ` refuses, without a server: unknown parameters of addresses, variables that are not set, short forms
of addresses; and what could never deliver, such as targets at private addresses that nothing allows. ` + "`--connect`" + ` also tries whether the
servers of store and sources answer. A file has at most 4 MiB and nests at most 64 deep.

Durations are written with a unit (` + "`1.5s`, `10m`, `30d`" + `), sizes too (` + "`64KiB`, `10GB`" + `), rates as
` + "`50/s`, `100/m`" + `. What holds a secret takes ` + "`env:NAME` or `file:PATH`" + `.

This page is made from the types by ` + "`go test ./internal/daemon/config -run TestReference -update`" + `.
`)
	r.write("The whole file", reflect.TypeFor[config.Config]())
	got := r.out.String()
	if *update {
		if err := os.WriteFile(referenceFile, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(referenceFile)
	if err != nil || string(want) != got {
		t.Errorf("docs/configuration.md is not what the types say (%v); write it with: go test ./internal/daemon/config -run TestReference -update", err)
	}
}

// reference writes what the types say.
type reference struct {
	docs map[string]string // of a type, or of TYPE.FIELD
	seen map[reflect.Type]bool
	out  strings.Builder
}

// library is where types of the configuration have the library's own beside them, in which
// the meaning of the same fields stands.
var library = map[string]string{"Health": "../../../guard/config.go", "Exit": "../../../guard/config.go", "Pace": "../../../guard/config.go", "Policy": "../../../policy.go"}

// typeDocs reads the comments of the package.
func typeDocs(t *testing.T) map[string]string {
	t.Helper()
	docs := make(map[string]string)
	files, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if strings.HasSuffix(f.Name(), ".go") && !strings.HasSuffix(f.Name(), "_test.go") {
			noteFile(t, docs, f.Name())
		}
	}
	for name, path := range library {
		of := make(map[string]string)
		noteFile(t, of, path)
		for field, text := range of {
			if strings.HasPrefix(field, name+".") {
				docs["library "+field] = text
			}
		}
	}
	return docs
}

func noteFile(t *testing.T, docs map[string]string, path string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	for _, decl := range file.Decls {
		gen, ok := decl.(*ast.GenDecl)
		if !ok {
			continue
		}
		for _, spec := range gen.Specs {
			if ts, ok := spec.(*ast.TypeSpec); ok {
				noteType(docs, gen, ts)
			}
		}
	}
}

// meaning is the comment of a field, or that of the library's, with its names as they are
// written here.
func (r *reference) meaning(t reflect.Type, f *reflect.StructField) string {
	if text := plain(r.docs[t.Name()+"."+f.Name]); text != "" {
		return text
	}
	if _, inner := r.kind(f.Type); inner != nil { // it has a section of its own
		return ""
	}
	text := plain(r.docs["library "+t.Name()+"."+f.Name])
	for other := range fieldsOf(t) {
		text = regexp.MustCompile(`\b`+other.Name+`\b`).ReplaceAllString(text, "`"+other.Tag.Get("yaml")+"`")
	}
	if of, _, shared := strings.Cut(text, " "); shared && of != "`"+f.Tag.Get("yaml")+"`" {
		return "see " + of
	}
	return text
}

func noteType(docs map[string]string, gen *ast.GenDecl, ts *ast.TypeSpec) {
	doc := ts.Doc
	if doc == nil {
		doc = gen.Doc
	}
	docs[ts.Name.Name] = doc.Text()
	st, ok := ts.Type.(*ast.StructType)
	if !ok {
		return
	}
	above := ""
	for _, field := range st.Fields.List {
		text := field.Doc.Text()
		if text == "" {
			text = field.Comment.Text()
		}
		if field.Doc != nil {
			above = text
		}
		for _, name := range field.Names {
			if text == "" && strings.Contains(above, name.Name) { // it shares the comment above
				text = above
			}
			docs[ts.Name.Name+"."+name.Name] = text
		}
	}
}

// plain is a comment on one line, without the brackets of Go's documentation.
func plain(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	for _, sign := range []string{"[redrive.Policy]", "[", "]"} {
		if sign == "[redrive.Policy]" {
			s = strings.ReplaceAll(s, sign, "the library's policy")
			continue
		}
		if !strings.ContainsAny(s, "*0") { // paths and hashes keep theirs
			s = strings.ReplaceAll(s, sign, "")
		}
	}
	return s
}

// write writes a section about a struct, then those about the structs in it.
func (r *reference) write(title string, t reflect.Type) {
	if r.seen[t] {
		return
	}
	r.seen[t] = true
	fmt.Fprintf(&r.out, "\n## %s\n\n", title)
	if doc := plain(r.docs[t.Name()]); doc != "" && title != "The whole file" {
		fmt.Fprintf(&r.out, "%s\n\n", doc)
	}
	r.out.WriteString("| key | value | meaning |\n|---|---|---|\n")
	type section struct {
		title string
		t     reflect.Type
	}
	var below []section
	for f := range fieldsOf(t) {
		key, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		what, inner := r.kind(f.Type)
		fmt.Fprintf(&r.out, "| `%s` | %s | %s |\n", key, what, strings.ReplaceAll(r.meaning(t, &f), "|", "\\|"))
		if inner != nil {
			below = append(below, section{"`" + inner.Name() + "`", inner})
		}
	}
	for _, s := range below {
		r.write(s.title, s.t)
	}
}

func fieldsOf(t reflect.Type) func(yield func(reflect.StructField) bool) {
	return func(yield func(reflect.StructField) bool) {
		for f := range t.Fields() {
			if key, _, _ := strings.Cut(f.Tag.Get("yaml"), ","); key == "" || key == "-" {
				continue
			}
			if !yield(f) {
				return
			}
		}
	}
}

// kind says what a value is, and the struct that it is made of, if any.
func (r *reference) kind(t reflect.Type) (string, reflect.Type) {
	switch t.Kind() {
	case reflect.Pointer:
		return r.kind(t.Elem())
	case reflect.Slice:
		what, inner := r.kind(t.Elem())
		return "list of " + what, inner
	case reflect.Map:
		what, inner := r.kind(t.Elem())
		return "map of name to " + what, inner
	}
	if t == reflect.TypeFor[config.PolicyRef]() {
		return "name of a policy, or " + link("Policy"), reflect.TypeFor[config.Policy]()
	}
	if t.Kind() == reflect.Struct && t.PkgPath() == reflect.TypeFor[config.Config]().PkgPath() {
		for range fieldsOf(t) {
			return link(t.Name()), t
		}
	}
	if t == reflect.TypeFor[config.MaskPath]() {
		return "path, or header:NAME", nil
	}
	if t.Name() != "" && t.PkgPath() != "" {
		return strings.ToLower(t.Name()), nil
	}
	switch t.Kind() {
	case reflect.Bool:
		return "true or false", nil
	case reflect.String:
		return "text", nil
	}
	return "number", nil
}

func link(name string) string { return fmt.Sprintf("[%s](#%s)", name, strings.ToLower(name)) }
