package backendtest

import (
	"fmt"
	"strings"
	"sync"
	"testing"
)

// Matrix is what became of each case.
type Matrix struct {
	mu   sync.Mutex
	rows []Row
}

// Row is the result of one case.
type Row struct {
	Case       string
	Passed     bool
	NotOffered string // what the backend lacks; the case was not run
}

// Rows returns the results in the order in which the cases ran.
func (m *Matrix) Rows() []Row {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]Row(nil), m.rows...)
}

// String returns a count and a line for each case that did not pass.
func (m *Matrix) String() string {
	var b strings.Builder
	passed := 0
	for _, r := range m.Rows() {
		switch {
		case r.NotOffered != "":
			fmt.Fprintf(&b, "\n%s: not offered: %s", r.Case, r.NotOffered)
		case r.Passed:
			passed++
		default:
			fmt.Fprintf(&b, "\n%s: FAILED", r.Case)
		}
	}
	return fmt.Sprintf("%d cases passed%s", passed, b.String())
}

// run runs one case and notes its result.
func (m *Matrix) run(t testing.TB, tc testCase, c *C) {
	t.Helper()
	for _, n := range tc.needs {
		if what := n(c); what != "" {
			m.add(Row{Case: tc.name, NotOffered: what})
			t.Skipf("not offered: %s", what)
		}
	}
	defer func() { m.add(Row{Case: tc.name, Passed: !t.Failed()}) }()
	tc.run(c)
	if c.store != nil {
		c.balanced()
	}
}

func (m *Matrix) add(r Row) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.rows = append(m.rows, r)
}
