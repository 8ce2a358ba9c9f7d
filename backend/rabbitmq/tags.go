package rabbitmq

import "slices"

// tags tells which delivery tags of a channel are acknowledged: all below low, and those
// of above. Tags count up from 1.
type tags struct {
	low   uint64
	above map[uint64]struct{}
}

func newTags() tags { return tags{low: 1, above: make(map[uint64]struct{})} }

// finish notes settled tags, and returns what to acknowledge: everything up to and
// including upTo (0: nothing), and single tags above it. Only the tags of acked are to be
// acknowledged; others are settled by other means that came before.
func (t *tags) finish(acked, others []uint64) (upTo uint64, single []uint64) {
	for _, tags := range [][]uint64{others, acked} {
		for _, tag := range tags {
			if tag == t.low { // as most are, in their order
				t.low++
			} else {
				t.above[tag] = struct{}{}
			}
		}
	}
	for len(t.above) > 0 {
		if _, done := t.above[t.low]; !done {
			break
		}
		delete(t.above, t.low)
		t.low++
	}
	for _, tag := range acked {
		if tag < t.low {
			upTo = max(upTo, tag)
		} else {
			single = append(single, tag)
		}
	}
	slices.Sort(single)
	return upTo, single
}
