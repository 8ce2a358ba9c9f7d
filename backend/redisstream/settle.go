package redisstream

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// Settle implements driver.Source.
func (s *Store) Settle(ctx context.Context, list []driver.Settlement) []error {
	errs := make([]error, len(list))
	if s.ctx.Err() != nil {
		return failAll(len(list), redrive.ErrClosed)
	}
	if s.parts != nil {
		return s.settleParts(ctx, list)
	}
	quick := true
	where := make([]position, len(list))
	for i := range list {
		if errs[i] = list[i].Validate(); errs[i] == nil {
			where[i] = positionOf(&list[i].Receipt)
			quick = quick && where[i].ok && where[i].place[0] == 's' && list[i].Outcome == redrive.OutcomeDone && len(list[i].Emit) == 0
		}
	}
	for from := 0; from < len(list); {
		n := min(stepPage, len(list)-from)
		if quick {
			n = s.settleQuick(ctx, list[from:], where[from:], errs[from:])
		} else {
			s.settlePage(ctx, list[from:from+n], where[from:from+n], errs[from:from+n])
		}
		from += n
	}
	if driver.FirstError(errs) == nil {
		return nil
	}
	return errs
}

// quickPage is how many plain entries one script settles at most.
const quickPage = 500

// settleQuick settles a page of plain entries of one queue as done, and returns how many
// of the list that were.
func (s *Store) settleQuick(ctx context.Context, list []driver.Settlement, where []position, errs []error) int {
	q := s.queue(list[0].Receipt.Queue)
	n := 0
	which := make([]int, 0, min(len(list), quickPage))
	for ; n < len(list) && len(which) < quickPage && list[n].Receipt.Queue == q.name; n++ {
		switch {
		case errs[n] != nil:
		case !q.names(where[n].place, list[n].Receipt.ID):
			errs[n] = redrive.ErrNotFound
		default:
			which = append(which, n)
		}
	}
	if len(which) == 0 {
		return n
	}
	// The script looks at all of a holder's at once.
	slices.SortStableFunc(which, func(a, b int) int { return strings.Compare(where[a].holder, where[b].holder) })
	got, err := s.conn.Write(ctx, scriptDone, q.settling, doneArgs(which, where)...)
	results := items(got)
	for k, i := range which {
		if errs[i] = s.fail(err); err == nil {
			errs[i] = codeError(number(at(results, k)))
		}
	}
	for from := 0; from < len(which); {
		held := sameHolder(which[from:], where)
		s.copies.drop(where[which[from]].holder, held)
		from += held
	}
	s.stats.settled.Add(int64(len(which)))
	return n
}

// sameHolder is how many of the first have one holder.
func sameHolder(which []int, where []position) int {
	n := 1
	for n < len(which) && where[which[n]].holder == where[which[0]].holder {
		n++
	}
	return n
}

func doneArgs(which []int, where []position) []any {
	args := make([]any, 0, len(which)+8)
	for len(which) > 0 {
		n := sameHolder(which, where)
		holder := where[which[0]].holder
		h, _ := parseHolder(holder)
		sizes := len(args) + 3
		args = append(args, holder, h.nonce, n, nil)
		total, each := int64(0), make([]byte, 0, 4*n)
		for _, i := range which[:n] {
			args = append(args, where[i].place[1:])
			total += where[i].size
			each = strconv.AppendInt(append(each, ' '), where[i].size, 10)
		}
		args[sizes] = strconv.FormatInt(total, 10) + string(each)
		which = which[n:]
	}
	return args
}

// settlePage settles a page in one step, after it has read the messages that live on.
func (s *Store) settlePage(ctx context.Context, list []driver.Settlement, where []position, errs []error) {
	found, err := s.settled(ctx, list, where, errs)
	if err != nil {
		for i := range errs {
			if errs[i] == nil {
				errs[i] = err
			}
		}
		return
	}
	st := s.step(ctx)
	var ops []*changeOp
	var index []int
	for i := range list {
		it := found[i]
		if it == nil {
			continue
		}
		o, err := s.settlement(it, &list[i])
		if err == nil {
			err = st.add(o)
		}
		if err != nil {
			errs[i] = err
			continue
		}
		ops, index = append(ops, o), append(index, i)
	}
	results, err := st.run(ctx, scriptStep)
	for n, i := range index {
		if errs[i] = err; err != nil {
			continue
		}
		got := items(at(results, n))
		errs[i] = codeError(number(at(got, 0)))
		for k, e := range ops[n].emits {
			if entry := text(at(got, k+1)); errs[i] == nil && entry != "" {
				e.m.ID = e.q.id(entry)
			}
		}
	}
	s.stats.settled.Add(int64(len(index)))
}

// settled returns the messages of a page's receipts, nil where there is an error.
func (s *Store) settled(ctx context.Context, list []driver.Settlement, where []position, errs []error) ([]*item, error) {
	found := make([]*item, len(list))
	var refs []redrive.Ref
	var index []int
	for i := range list {
		if errs[i] != nil {
			continue
		}
		t := &list[i]
		p := &where[i]
		if q := s.queue(t.Receipt.Queue); p.ok && (t.Outcome == redrive.OutcomeDone || t.Outcome == redrive.OutcomeDrop) {
			it := &item{q: q, place: p.place, holder: p.holder, msg: redrive.Message{ID: t.Receipt.ID, Queue: q.name}}
			if !q.names(p.place, t.Receipt.ID) {
				errs[i] = redrive.ErrNotFound
				continue
			}
			found[i] = it
			continue
		}
		if it := s.copied(t, p); it != nil {
			found[i] = it
			continue
		}
		refs, index = append(refs, t.Receipt.Ref), append(index, i)
	}
	if len(refs) == 0 {
		return found, nil
	}
	got, _, err := s.lookup(ctx, refs)
	if err != nil {
		return nil, err
	}
	for n, i := range index {
		it := got[n]
		switch {
		case it == nil:
			errs[i] = redrive.ErrNotFound
		case !where[i].ok || it.place != where[i].place || it.holder != where[i].holder:
			errs[i] = redrive.ErrLeaseLost
		default:
			found[i] = it
		}
	}
	return found, nil
}

// copied returns the message of a first claim that this process made, or nil. What is
// released, or was a suspect, is read.
func (s *Store) copied(t *driver.Settlement, p *position) *item {
	if !p.ok || p.place[0] != 's' || t.Outcome == redrive.OutcomeRelease {
		return nil
	}
	h, _ := parseHolder(p.holder)
	if h.isolated || h.suspect {
		return nil
	}
	q := s.queue(t.Receipt.Queue)
	m, sum, ok := s.copies.take(t.Receipt.Ref, p.holder)
	if !ok || !q.names(p.place, m.ID) {
		return nil
	}
	it := &item{q: q, place: p.place, holder: p.holder, msg: m, stored: stored{sum: sum}}
	it.published = micros(m.PublishedAt)
	it.token, it.attempts = h.token, h.attempts
	return it
}

// names reports whether a place is that of a message id.
func (q *queue) names(place, id string) bool {
	if place[0] != 's' {
		return place[1:] == id
	}
	var text [idLength]byte
	return q.writeID(&text, place[1:]) && string(text[:]) == id
}

// settlement plans one settlement of a message.
func (s *Store) settlement(it *item, t *driver.Settlement) (*changeOp, error) {
	o := &changeOp{it: it, active: true, what: "remove"}
	for i := range t.Emit {
		for j := range i {
			if t.Emit[j].ID != "" && t.Emit[j].Ref() == t.Emit[i].Ref() && s.masks.BodyHash(&t.Emit[j]) != s.masks.BodyHash(&t.Emit[i]) {
				return nil, redrive.ErrConflict
			}
		}
		o.emits = append(o.emits, &newOp{m: &t.Emit[i], account: "published"})
	}
	it.dueIn(t.After)
	switch t.Outcome {
	case redrive.OutcomeDone:
		o.ledger = []any{"done", 1}
		o.memory = memory{outcome: t.Outcome, ended: true}
		return o, nil
	case redrive.OutcomeDrop:
		o.ledger = []any{"dropped", 1}
		o.memory = memory{outcome: t.Outcome, reason: t.Reason, ended: true}
		return o, nil
	}
	if it.dead() {
		return o, s.settleDead(o, t)
	}
	it.late()
	switch t.Outcome {
	case redrive.OutcomeDead:
		it.record(t.Failure, true)
		o.memory = memory{outcome: t.Outcome, reason: t.Reason}
		o.die(t.Reason)
	case redrive.OutcomeRetry:
		it.record(t.Failure, true)
		it.lane = redrive.LaneRetry
		it.flags &^= flagSuspect
		o.what = "wait"
	case redrive.OutcomeRelease:
		it.record(t.Failure, false)
		it.attempts--
		o.what = "wait"
	case redrive.OutcomeRepeat:
		o.ledger = []any{"done", 1, "repeated", 1}
		o.memory = memory{set: true}
		o.what, o.fresh = "wait", true
		it.msg.Generation++
		it.published, it.seq, it.attempts, it.failures, it.crashes = 0, 0, 0, 0, 0
		it.history, it.original, it.originalSum = redrive.History{}, nil, checksum{}
		it.flags &^= flagSuspect
		it.lane = redrive.LaneFresh
	}
	return o, nil
}

// settleDead plans the settlement of a claimed dead letter that stays in the store.
func (s *Store) settleDead(o *changeOp, t *driver.Settlement) error {
	it := o.it
	it.edit(t.Edit)
	switch t.Outcome {
	case redrive.OutcomeRepeat:
		o.revive("")
		it.dueIn(t.After)
		return o.follow()
	case redrive.OutcomeRetry:
		it.record(t.Failure, false)
	case redrive.OutcomeRelease:
		it.attempts--
	default:
		it.record(t.Failure, false)
		it.dueIn(0)
	}
	o.what = "die"
	o.fields = it.fields()
	return o.follow()
}
