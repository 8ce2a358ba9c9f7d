package rooms

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// phrases have one meaning each, for which the glossary has the field's word.
var phrases = regexp.MustCompile(`(?i)\b(the books|balances? the books|in hand|hand(s|ed|ing)? (it |them )?out|(is|are|was|were|be|been|being|not) told|sets? aside|setting aside|struck|a blow|heed(s|ed)?|the story of|tells? (its|their) story|` +
	`(claim(s|ed)?|deliver(s|ed)?|handle[sd]?|run|runs|tried) (it |them )?alone|alone in (it|the process)|(soft|hard|page|committed) marks?|marks of (its |their |a )?claims?|(above|below|up to) the mark|adopt\w*)\b`)

// oldNames were names of Go, JSON, metrics and flags; none may come back. A verdict was that on a
// setting, which is a finding; it is that on a cause now.
var oldNames = regexp.MustCompile(`\b([A-Za-z]*Books[A-Z]?[a-z]*|Trial|[A-Za-z]*Watermarks?|inHand|MarksClaims|SetAside|TakeStory|redrive_book)\b|"(books|trial)(,omitempty)?"`)

// oldParts were parts of names, in code of any language.
var oldParts = regexp.MustCompile(`(^|_)(alone|solo|story|told|marks?|book)([A-Z0-9_]|$)|(^|[a-z0-9_])(Alone|Solo|Story|Told|Marks?)([A-Z0-9_]|$)|(?i:adopt)|ALONE`)

var (
	bullet = regexp.MustCompile(`^\s*([-*|#>]|\d+\.|` + "```" + `)`)
	name   = regexp.MustCompile(`[A-Za-z_]\w*`)
	quoted = regexp.MustCompile(`^["` + "`" + `]\w+["` + "`" + `]$`)
	// comments begin lines, by the ending of the file.
	comments = map[string][]string{".sql": {"--"}, ".lua": {"--"}, ".js": {"//", "/*", "*"}, ".ts": {"//", "/*", "*"}, ".yaml": {"#"}, ".yml": {"#"}}
)

// TestWords refuses old phrases in comments, strings and docs, and old names in code. See
// docs/glossary.md.
func TestWords(t *testing.T) {
	err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (slices.Contains([]string{"node_modules", "bin", "testdata"}, d.Name()) || strings.HasPrefix(d.Name(), ".") && path != root):
			return filepath.SkipDir
		case d.IsDir() || slices.Contains([]string{"words_test.go", "CHANGELOG.md", "glossary.md"}, d.Name()): // they name what was renamed
			return nil
		}
		if ext := filepath.Ext(path); ext == ".go" {
			inGo(t, path)
		} else if comments[ext] != nil || ext == ".md" {
			inText(t, path, comments[ext])
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// inGo checks a file of Go.
func inGo(t *testing.T, path string) {
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
			check(n.Pos(), n.Name, oldParts)
		case *ast.BasicLit:
			if n.Kind == token.STRING {
				check(n.Pos(), n.Value, phrases)
				check(n.Pos(), n.Value, oldNames)
				if quoted.MatchString(n.Value) {
					check(n.Pos(), strings.Trim(n.Value, "\"`"), oldParts)
				}
			}
		}
		return true
	})
}

// inText checks a document, or with the beginnings of its comments a file of another
// language. Wrapped lines of a paragraph are read as one.
func inText(t *testing.T, path string, begins []string) {
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for line, paragraph := range paragraphs(string(data), begins) {
		if p := phrases.FindString(paragraph); p != "" {
			t.Errorf("%s:%d: %q: see docs/glossary.md", path, line, p)
		}
	}
	if begins == nil {
		return
	}
	for i, line := range strings.Split(string(data), "\n") {
		if _, comment := uncommented(line, begins); comment {
			continue
		}
		for _, n := range name.FindAllString(line, -1) {
			if oldNames.MatchString(n) || oldParts.MatchString(n) {
				t.Errorf("%s:%d: %q: see docs/glossary.md", path, i+1, n)
			}
		}
	}
}

// paragraphs returns a text's paragraphs, each on one line, by the number of its first.
// Items of lists, rows of tables and lines of code are paragraphs of their own.
func paragraphs(text string, begins []string) map[int]string {
	all := make(map[int]string)
	first, joins := 0, false
	for i, line := range strings.Split(text, "\n") {
		line, comment := uncommented(line, begins)
		line = strings.TrimSpace(line)
		goesOn := line != "" && (begins == nil || comment)
		if !goesOn || !joins || bullet.MatchString(line) {
			first = i + 1
		}
		all[first] = strings.TrimSpace(all[first] + " " + line)
		joins = goesOn
	}
	return all
}

// uncommented returns a line without what begins its comment, and whether it is one.
func uncommented(line string, begins []string) (rest string, comment bool) {
	line = strings.TrimSpace(line)
	for _, begin := range begins {
		if rest, ok := strings.CutPrefix(line, begin); ok {
			return rest, true
		}
	}
	return line, false
}

// TestParagraphs: a phrase is found although its line is wrapped, and not over the end of an item.
func TestParagraphs(t *testing.T) {
	for text, want := range map[string]bool{
		"what it had in\nhand": true, "- what it had in\n  hand": true, "- what it had in\n- hand": false, "what it had in\n\nhand": false, "| in |\n| hand |": false,
	} {
		found := false
		for _, p := range paragraphs(text, nil) {
			found = found || phrases.MatchString(p)
		}
		if found != want {
			t.Errorf("%q: %t", text, found)
		}
	}
	if p := paragraphs("-- had in\n-- hand\nlocal a", []string{"--"}); p[1] != "had in hand" || p[3] != "local a" {
		t.Errorf("%v", p)
	}
}
