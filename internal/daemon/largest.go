package daemon

import "slices"

// largest keeps those of many items that come first in an order, at most so many.
type largest[T any] struct {
	most  int
	order func(x, y T) int
	items []T
	more  bool // there are more
}

func (l *largest[T]) add(item T) {
	if l.items = append(l.items, item); len(l.items) >= 2*l.most {
		l.cut()
	}
}

func (l *largest[T]) cut() {
	slices.SortFunc(l.items, l.order)
	if len(l.items) > l.most {
		clear(l.items[l.most:])
		l.items, l.more = l.items[:l.most], true
	}
}

// list returns them in order, and whether they are all.
func (l *largest[T]) list() (items []T, all bool) {
	l.cut()
	return l.items, !l.more
}
