// Command codelines counts the lines of Go below a folder that hold code: not those that
// are empty or hold only comments, and none of generated files. Each line counts as
// product, as support of tests, as test, or as what stands beside the product: examples, benches
// and tools.
//
//	codelines DIR
package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"io"
	"io/fs"
	"log"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"
)

// kind is what a file is for.
type kind int

const (
	product kind = iota
	support
	test
	beside
	kinds
)

// besides are programs that the product does not need.
var besides = regexp.MustCompile(`^((guard/)?bench|examples|tools)(/|$)`)

// supports are the packages that only tests import: helpers, the conformance suite, and
// what stands in test/.
var supports = regexp.MustCompile(`^(internal/\w+test|backend/backendtest|test)(/|$)`)

func kindOf(path string) kind {
	switch {
	case strings.HasSuffix(path, "_test.go"):
		return test
	case supports.MatchString(filepath.ToSlash(filepath.Dir(path))):
		return support
	case besides.MatchString(filepath.ToSlash(filepath.Dir(path))):
		return beside
	}
	return product
}

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: codelines DIR")
	}
	counts, err := count(os.Args[1])
	if err == nil {
		err = write(os.Stdout, counts)
	}
	if err != nil {
		log.Fatal(err)
	}
}

// count returns the lines below a folder by top folder.
func count(root string) (map[string][kinds]int, error) {
	counts := make(map[string][kinds]int)
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		switch name := d.Name(); {
		case d.IsDir() && rel != "." && (strings.HasPrefix(name, ".") || name == "bin" || name == "testdata" || name == "node_modules"):
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(name, ".go"):
			return nil
		}
		src, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		top, _, below := strings.Cut(filepath.ToSlash(rel), "/")
		if !below {
			top = "."
		}
		c := counts[top]
		c[kindOf(rel)] += lines(src)
		counts[top] = c
		return nil
	})
	return counts, err
}

// lines counts those of a file that hold a token.
func lines(src []byte) (n int) {
	files := token.NewFileSet()
	if parsed, err := parser.ParseFile(files, "", src, parser.PackageClauseOnly|parser.ParseComments); err == nil && ast.IsGenerated(parsed) {
		return 0
	}
	file := files.AddFile("", files.Base(), len(src))
	var s scanner.Scanner
	s.Init(file, src, nil, 0)
	for last := 0; ; {
		pos, tok, text := s.Scan()
		if tok == token.EOF {
			return n
		}
		if tok == token.SEMICOLON && text == "\n" {
			continue // the end of a line
		}
		first := file.Line(pos)
		end := first + strings.Count(text, "\n") // of a string over several lines
		n += end - max(first, last+1) + 1
		last = end
	}
}

func write(w io.Writer, counts map[string][kinds]int) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	row := func(name string, c [kinds]int) {
		fmt.Fprintf(table, "%s\t%d\t%d\t%d\t%d\t%d\t\n", name, c[product], c[support], c[test], c[beside], c[product]+c[support]+c[test]+c[beside])
	}
	fmt.Fprintln(table, "folder\tproduct\ttest support\ttests\texamples, benches, tools\ttotal\t")
	var total [kinds]int
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		c := counts[name]
		for k := range total {
			total[k] += c[k]
		}
		row(name, c)
	}
	row("total", total)
	return table.Flush()
}
