package sqlstore

import (
	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// Rounds checks settlements and parts them so that no message is twice in a round.
func Rounds(items []driver.Settlement, errs []error) [][]int {
	var all [][]int
	times := make(map[redrive.Ref]int)
	for i := range items {
		if errs[i] = items[i].Validate(); errs[i] != nil {
			continue
		}
		n := times[items[i].Receipt.Ref]
		times[items[i].Receipt.Ref]++
		if n == len(all) {
			all = append(all, nil)
		}
		all[n] = append(all[n], i)
	}
	return all
}
