package ui

import (
	"fmt"
	"html/template"
	"slices"
	"strings"
)

// spark draws numbers as columns, one beside the other: the whole height is the largest.
//
// It is the one place that writes HTML: of numbers only, which cannot carry any.
func spark(values []int64, label string) template.HTML {
	const width, height = 3, 20
	if len(values) == 0 {
		return ""
	}
	most := max(slices.Max(values), 1)
	var b strings.Builder
	fmt.Fprintf(&b, `<svg class="spark" role="img" viewBox="0 0 %d %d" preserveAspectRatio="none" aria-label="%s"><path d="M0 %dh%d`,
		len(values)*(width+1), height, template.HTMLEscapeString(label), height, len(values)*(width+1))
	for i, n := range values {
		if n > 0 {
			h := max(n*height/most, 2)
			fmt.Fprintf(&b, "M%d %dv-%dh%dv%dz", i*(width+1), height, h, width, h)
		}
	}
	b.WriteString(`"/></svg>`)
	return template.HTML(b.String()) //nolint:gosec // of numbers, and a label that is escaped
}

// columns adds neighbours until there are at most so many numbers.
func columns(values []int64, most int) []int64 {
	each := (len(values) + most - 1) / most
	if each <= 1 {
		return values
	}
	var out []int64
	for part := range slices.Chunk(values, each) {
		sum := int64(0)
		for _, n := range part {
			sum += n
		}
		out = append(out, sum)
	}
	return out
}
