// Package linediff compares texts line by line.
package linediff

import "strings"

// Bounds of a comparison.
const (
	context = 2    // lines around those that differ
	each    = 2000 // lines on each side that are compared one by one
	beyond  = 60   // lines on each side that are shown of more
)

// Lines returns the lines that differ, which begin with "- " and "+ ", and a few around them, which
// begin with two spaces. The comma behind what is followed by something new is no difference.
func Lines(a, b []string) []string {
	head := 0
	for head < len(a) && head < len(b) && same(a[head], b[head]) {
		head++
	}
	tail := 0
	for tail < len(a)-head && tail < len(b)-head && same(a[len(a)-1-tail], b[len(b)-1-tail]) {
		tail++
	}
	var out []string
	for _, line := range a[max(head-context, 0):head] {
		out = append(out, "  "+line)
	}
	out = append(out, changes(a[head:len(a)-tail], b[head:len(b)-tail])...)
	for _, line := range a[len(a)-tail : len(a)-tail+min(tail, context)] {
		out = append(out, "  "+line)
	}
	return folded(out)
}

// same compares lines but for the comma behind what is followed by something new.
func same(a, b string) bool { return strings.TrimSuffix(a, ",") == strings.TrimSuffix(b, ",") }

// changes compares lines by their longest common subsequence.
func changes(a, b []string) (out []string) {
	if len(a) > each || len(b) > each {
		a, b = a[:min(len(a), beyond)], b[:min(len(b), beyond)]
	}
	common := make([][]int, len(a)+1)
	for i := range common {
		common[i] = make([]int, len(b)+1)
	}
	for i := len(a) - 1; i >= 0; i-- {
		for j := len(b) - 1; j >= 0; j-- {
			if common[i][j] = max(common[i+1][j], common[i][j+1]); same(a[i], b[j]) {
				common[i][j] = common[i+1][j+1] + 1
			}
		}
	}
	i, j := 0, 0
	for i < len(a) || j < len(b) {
		switch {
		case i < len(a) && j < len(b) && same(a[i], b[j]):
			out = append(out, "  "+a[i])
			i, j = i+1, j+1
		case j == len(b) || i < len(a) && common[i+1][j] >= common[i][j+1]:
			out = append(out, "- "+a[i])
			i++
		default:
			out = append(out, "+ "+b[j])
			j++
		}
	}
	return out
}

// folded leaves out lines that are the same on both sides and far from those that are not.
func folded(lines []string) (out []string) {
	near := func(i int) bool {
		for k := max(i-context, 0); k <= min(i+context, len(lines)-1); k++ {
			if lines[k][0] != ' ' {
				return true
			}
		}
		return false
	}
	for i := range lines {
		switch {
		case near(i):
			out = append(out, lines[i])
		case len(out) > 0 && out[len(out)-1] != "  …":
			out = append(out, "  …")
		}
	}
	return out
}
