package memory

import (
	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// remembered is the memory of an id that the caller chose. It lasts as long as the
// message, and keep longer.
type remembered struct {
	id      string
	hash    uint64
	at      int64
	keep    int64
	ended   bool
	outcome redrive.Outcome
	reason  redrive.Reason
}

// end notes how a message ended. The memory of a dead letter does not run out.
func (r *remembered) end(o redrive.Outcome, reason redrive.Reason, now int64) {
	if r != nil {
		r.outcome, r.reason, r.at = o, reason, now
	}
}

// revive notes that a message lives again.
func (r *remembered) revive(now int64) { r.end(0, 0, now) }

func (r *remembered) expired(now int64) bool { return r.ended && now-r.at >= r.keep }

// remember starts the memory of an item's id.
func (q *queue) remember(it *item, hash uint64, now int64) {
	keep := q.settings.Remember
	if keep <= 0 {
		keep = driver.DefaultRemember
	}
	it.memory = &remembered{id: it.msg.ID, hash: hash, at: now, keep: int64(keep)}
	if q.remembered == nil {
		q.remembered = make(map[string]*remembered)
	}
	q.remembered[it.msg.ID] = it.memory
}

// release lets the memory of a message that is gone run out.
func (q *queue) release(r *remembered, o redrive.Outcome, reason redrive.Reason, now int64) {
	if r == nil {
		return
	}
	r.end(o, reason, now)
	r.ended = true
	q.forget = append(q.forget, r)
}

// recall returns the memory of an id, or nil.
func (q *queue) recall(id string, now int64) *remembered {
	r := q.remembered[id]
	if r == nil || r.expired(now) {
		return nil
	}
	return r
}

// forgetSome removes memories that ran out, at most limit, and returns how many.
func (q *queue) forgetSome(limit int, now int64) (n int) {
	i := 0
	for ; i < len(q.forget) && n < limit && q.forget[i].expired(now); i++ {
		if r := q.forget[i]; q.remembered[r.id] == r {
			delete(q.remembered, r.id)
			n++
		}
		q.forget[i] = nil
	}
	q.forget = q.forget[i:]
	return n
}

// forgetAll is forgetSome whatever the order, for queues whose settings changed.
func (q *queue) forgetAll(limit int, now int64) (n int) {
	kept := q.forget[:0]
	for _, r := range q.forget {
		switch {
		case n >= limit || !r.expired(now):
			kept = append(kept, r)
		case q.remembered[r.id] == r:
			delete(q.remembered, r.id)
			n++
		}
	}
	clear(q.forget[len(kept):])
	q.forget = kept
	return n
}

// forgetRemoved forgets an id whose message was archived or dropped, so that it can be put back.
func (q *queue) forgetRemoved(id string) {
	if r := q.remembered[id]; r != nil && r.ended && (r.outcome == redrive.OutcomeDead || r.outcome == redrive.OutcomeDrop) && q.byID[id] == nil {
		delete(q.remembered, id)
	}
}

// collision tells whether an id is taken: nil, ErrDuplicate or ErrConflict.
func (q *queue) collision(m *redrive.Message, hash uint64, now int64) error {
	taken, known := uint64(0), false
	if r := q.recall(m.ID, now); r != nil {
		taken, known = r.hash, true
	} else if it := q.byID[m.ID]; it != nil {
		first := &it.msg
		if it.original != nil {
			first = it.original
		}
		taken, known = q.s.masks.BodyHash(first), true
	}
	switch {
	case !known:
		return nil
	case taken == hash:
		return redrive.ErrDuplicate
	}
	return redrive.ErrConflict
}
