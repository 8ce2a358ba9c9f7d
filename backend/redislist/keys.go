package redislist

import "strings"

// keys are those of one queue; see the layout in the package's documentation.
type keys struct {
	waiting, taken, seq, body, state, story, leases string
	due                                             [3]string // by lane
	dead, deadIDs, ids, forget, wake                string
}

// newKeys returns the keys beside a list. Its name has a hash tag or becomes one, so
// that all are in the list's slot.
func newKeys(list string) *keys {
	base := list
	if open := strings.IndexByte(list, '{'); open < 0 || strings.IndexByte(list[open:], '}') < 2 {
		base = "{" + list + "}"
	}
	return &keys{
		waiting: list, taken: base + ":taken", seq: base + ":seq", body: base + ":body", state: base + ":state",
		story: base + ":story", leases: base + ":leases",
		due:  [3]string{base + ":fresh", base + ":retry", base + ":redrive"},
		dead: base + ":dead", deadIDs: base + ":deadids", ids: base + ":ids", forget: base + ":forget", wake: base + ":wake",
	}
}
