package redislist

import "strings"

// keys are those of one queue; see the layout in the package's documentation.
type keys struct {
	waiting, taken, seq, body, state, history, leases string
	due                                               [3]string // by lane
	dead, deadIDs, ids, forget, wake                  string
}

// beside is what the keys beside a list begin with. The list's name has a hash tag or
// becomes one, so that all are in its slot.
func beside(list string) string {
	if open := strings.IndexByte(list, '{'); open < 0 || strings.IndexByte(list[open:], '}') < 2 {
		return "{" + list + "}"
	}
	return list
}

// newKeys returns the keys of a list.
func newKeys(list string) *keys {
	base := beside(list)
	return &keys{
		waiting: list, taken: base + ":taken", seq: base + ":seq", body: base + ":body", state: base + ":state",
		history: base + ":history", leases: base + ":leases",
		due:  [3]string{base + ":fresh", base + ":retry", base + ":redrive"},
		dead: base + ":dead", deadIDs: base + ":deadids", ids: base + ":ids", forget: base + ":forget", wake: base + ":wake",
	}
}

// rightsKeys returns those of script/rights.lua: the list, which it does not touch, and names
// beside it that are as unique as the nonce.
func rightsKeys(list, nonce string) []string {
	all := []string{list}
	for _, kind := range []string{":list", ":other", ":hash", ":sorted", ":number"} {
		all = append(all, beside(list)+":rights:"+nonce+kind)
	}
	return all
}
