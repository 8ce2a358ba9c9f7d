package memory

// heap orders items by a time and their seq. An item knows its index, so that it can
// be removed from the middle.
type heap struct {
	entries []heapEntry
	by      by
}

// by is what a heap is ordered by, and so where an item keeps its index.
type by uint8

const (
	byDue by = iota // or by the end of the lease
	byExpiry
	byDeath
)

type heapEntry struct {
	at  int64
	seq uint64
	it  *item
}

func (a *heapEntry) before(b *heapEntry) bool { return a.at < b.at || a.at == b.at && a.seq < b.seq }

// first is the earliest time, or never.
func (h *heap) first() int64 {
	if len(h.entries) == 0 {
		return never
	}
	return h.entries[0].at
}

func (h *heap) index(it *item) *int {
	switch h.by {
	case byExpiry:
		return &it.expIdx
	case byDeath:
		return &it.deadIdx
	case byDue:
	}
	return &it.idx
}

func (h *heap) push(at int64, it *item) {
	h.entries = append(h.entries, heapEntry{at, it.seq, it})
	h.up(len(h.entries) - 1)
}

func (h *heap) remove(it *item) {
	i, last := *h.index(it), len(h.entries)-1
	*h.index(it) = -1
	moved := h.entries[last]
	h.entries[last] = heapEntry{}
	h.entries = h.entries[:last]
	if i == last {
		return
	}
	h.set(i, moved)
	h.up(i)
	h.down(*h.index(moved.it))
}

func (h *heap) set(i int, e heapEntry) {
	h.entries[i] = e
	*h.index(e.it) = i
}

func (h *heap) up(i int) {
	e := h.entries[i]
	for i > 0 {
		parent := (i - 1) / 2
		if !e.before(&h.entries[parent]) {
			break
		}
		h.set(i, h.entries[parent])
		i = parent
	}
	h.set(i, e)
}

func (h *heap) down(i int) {
	e := h.entries[i]
	for {
		child := 2*i + 1
		if child >= len(h.entries) {
			break
		}
		if child+1 < len(h.entries) && h.entries[child+1].before(&h.entries[child]) {
			child++
		}
		if !h.entries[child].before(&e) {
			break
		}
		h.set(i, h.entries[child])
		i = child
	}
	h.set(i, e)
}
