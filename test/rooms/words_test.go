package rooms

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// phrases have one meaning each, for which the glossary has the field's word.
var phrases = regexp.MustCompile(`(?i)\b(the books|balances? the books|in hand|hand(s|ed|ing)? (it |them )?out|(is|are|was|were) told|sets? aside|setting aside|struck|a blow|heed(s|ed)?|the story of|tells? (its|their) story)\b`)

// oldNames were names of Go, JSON, metrics and flags; none may come back.
var oldNames = regexp.MustCompile(`\b([A-Za-z]*Books[A-Z]?[a-z]*|Trial|[A-Za-z]*Watermarks?|[A-Za-z]*Verdicts?|inHand|MarksClaims|SetAside|TakeStory)\b|"(books|trial|verdicts?)(,omitempty)?"`)

// TestWords refuses old phrases in comments, strings and docs, and old names in code. See
// docs/glossary.md.
func TestWords(t *testing.T) {
	const root = "../.."
	sources, docs, err := texts(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range docs {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for i, line := range strings.Split(string(data), "\n") {
			if p := phrases.FindString(line); p != "" {
				t.Errorf("%s:%d: %q: see docs/glossary.md", path, i+1, p)
			}
		}
	}
	for _, path := range sources {
		if filepath.Base(path) != "words_test.go" {
			words(t, path)
		}
	}
}

// words checks a file of Go.
func words(t *testing.T, path string) {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, path, nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	check := func(pos token.Pos, s string, of *regexp.Regexp) {
		if p := of.FindString(s); p != "" {
			t.Errorf("%s: %q: see docs/glossary.md", set.Position(pos), p)
		}
	}
	for _, group := range file.Comments {
		check(group.Pos(), strings.Join(strings.Fields(group.Text()), " "), phrases)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.Ident:
			check(n.Pos(), n.Name, oldNames)
		case *ast.BasicLit:
			if n.Kind == token.STRING {
				check(n.Pos(), n.Value, phrases)
				check(n.Pos(), n.Value, oldNames)
			}
		}
		return true
	})
}

// texts finds the files of Go and the docs.
func texts(root string) (sources, docs []string, err error) {
	err = filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "node_modules" || d.Name() == "bin" || d.Name() == "testdata" || strings.HasPrefix(d.Name(), ".") && path != root):
			return filepath.SkipDir
		case filepath.Ext(path) == ".go":
			sources = append(sources, path)
		case filepath.Ext(path) == ".md" && d.Name() != "CHANGELOG.md" && d.Name() != "glossary.md":
			docs = append(docs, path)
		}
		return nil
	})
	return sources, docs, err
}
