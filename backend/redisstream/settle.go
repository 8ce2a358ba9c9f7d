package redisstream

import (
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redrive/redrive"
)

// memory is what becomes of the memory of a message's id.
type memory struct {
	outcome redrive.Outcome // 0 with set: it lives again
	reason  redrive.Reason
	ended   bool
	set     bool
	moved   string // hash to remember at the new place
}

// changeOp changes a message: from its place to another, or away.
type changeOp struct {
	it     *item
	active bool // the holder may still have its lease: a settlement
	checks bool // the item was read, so it must not have changed since
	what   string
	to     *queue // nil: stays
	idTo   string
	memory memory
	books  []any // name, count
	booksT []any // of the queue it moves to
	fresh  bool  // it begins a new place among those of its key
	emits  []*newOp
	fields []string
}

// die makes the change a dead letter.
func (o *changeOp) die(reason redrive.Reason) {
	it := o.it
	o.what = "die"
	it.reason, it.died, it.due, it.relative = reason, 0, 0, true
	it.flags &^= flagSuspect
	it.seq = 0
	o.fields = it.fields()
}

func (o *changeOp) pack(p *packed, st *step) error {
	it := o.it
	to, id := it.q, it.msg.ID
	if o.to != nil {
		to = o.to
	}
	if o.idTo != "" {
		id = o.idTo
	}
	var e []byte
	if o.what != "remove" {
		var err error
		if e, err = seal(&it.msg, &it.history, it.original); err != nil {
			return err
		}
	}
	old := it.msg.ID
	if it.place[0] != 's' {
		old = it.place[1:]
	}
	rev := int64(-1)
	if o.checks && it.place[0] != 's' {
		rev = it.rev
	}
	p.list(19)
	p.str("c")
	p.num(st.index(it.q))
	p.str(it.place)
	p.str(old)
	p.str(it.holder)
	p.num(int64(bit(o.active)))
	p.num(rev)
	p.str(o.what)
	p.num(st.index(to))
	p.str(id)
	it.head.pack(p)
	p.bytes(e)
	o.packMemory(p)
	packBooks(p, o.books)
	p.list(len(o.fields))
	for _, f := range o.fields {
		p.str(f)
	}
	p.list(len(o.emits))
	for _, n := range o.emits {
		if err := n.pack(p, st); err != nil {
			return err
		}
	}
	packBooks(p, o.booksT)
	p.num(int64(bit(o.fresh)))
	p.num(int64(it.msg.Size()))
	return nil
}

func (o *changeOp) packMemory(p *packed) {
	outcome := int64(o.memory.outcome)
	if !o.memory.set && o.memory.outcome == 0 && !o.memory.ended {
		outcome = -1
	}
	p.list(4)
	p.num(outcome)
	p.num(int64(o.memory.reason))
	p.num(int64(bit(o.memory.ended)))
	p.str(o.memory.moved)
}

func packBooks(p *packed, books []any) {
	p.list(len(books))
	for _, v := range books {
		switch v := v.(type) {
		case string:
			p.str(v)
		case int:
			p.num(int64(v))
		}
	}
}

// fields are what ordinary tools read of a dead letter.
func (it *item) fields() []string {
	m := &it.msg
	fields := []string{"id", m.ID, "queue", m.Queue, "reason", it.reason.String()}
	add := func(name, value string) {
		if value != "" {
			fields = append(fields, name, value)
		}
	}
	add("kind", m.Kind)
	add("key", m.Key)
	add("origin", m.Origin)
	if f := it.history.Latest(); f != nil {
		if len(f.Types) > 0 {
			add("error_type", f.Types[0])
		}
		add("error", f.Message)
		add("signature", f.Signature)
		add("target", f.Config.Target)
		add("host", f.Host)
		add("trace_id", f.TraceID)
		add("failed_at", f.At.UTC().Format(time.RFC3339Nano))
		add("first_failed_at", it.history.First.At.UTC().Format(time.RFC3339Nano))
	}
	add("attempts", strconv.FormatInt(it.attempts, 10))
	add("failures", strconv.Itoa(it.history.Count))
	if !m.PublishedAt.IsZero() {
		add("published_at", m.PublishedAt.UTC().Format(time.RFC3339Nano))
	}
	if len(m.Headers) > 0 {
		pairs := make([][2]string, len(m.Headers))
		for i := range m.Headers {
			pairs[i] = [2]string{m.Headers[i].Name, string(m.Headers[i].Value)}
		}
		if b, err := json.Marshal(pairs); err == nil {
			add("headers", string(b))
		}
	}
	return append(fields, "body", string(m.Body))
}

// Settle implements redrive.Source.
func (s *Store) Settle(ctx context.Context, list []redrive.Settlement) []error {
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
	if redrive.FirstError(errs) == nil {
		return nil
	}
	return errs
}

// quickPage is how many plain entries one script settles at most.
const quickPage = 500

// settleQuick settles a page of plain entries of one queue as done, and returns how many
// of the list that were.
func (s *Store) settleQuick(ctx context.Context, list []redrive.Settlement, where []position, errs []error) int {
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
func (s *Store) settlePage(ctx context.Context, list []redrive.Settlement, where []position, errs []error) {
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
func (s *Store) settled(ctx context.Context, list []redrive.Settlement, where []position, errs []error) ([]*item, error) {
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

// copied returns the message of a first claim that this process made, or nil. What a
// release or a claim alone becomes depends on whether the lease ran out: that is read.
func (s *Store) copied(t *redrive.Settlement, p *position) *item {
	if !p.ok || p.place[0] != 's' || t.Outcome == redrive.OutcomeRelease {
		return nil
	}
	h, _ := parseHolder(p.holder)
	if h.alone || h.suspect {
		return nil
	}
	q := s.queue(t.Receipt.Queue)
	m, ok := s.copies.take(t.Receipt.Ref, p.holder)
	if !ok || !q.names(p.place, m.ID) {
		return nil
	}
	it := &item{q: q, place: p.place, holder: p.holder, msg: m}
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
func (s *Store) settlement(it *item, t *redrive.Settlement) (*changeOp, error) {
	o := &changeOp{it: it, active: true, what: "remove"}
	for i := range t.Emit {
		for j := range i {
			if t.Emit[j].ID != "" && t.Emit[j].Ref() == t.Emit[i].Ref() && redrive.BodyHash(&t.Emit[j]) != redrive.BodyHash(&t.Emit[i]) {
				return nil, redrive.ErrConflict
			}
		}
		o.emits = append(o.emits, &newOp{m: &t.Emit[i], book: "published"})
	}
	it.relative, it.due = true, span(t.After)
	switch t.Outcome {
	case redrive.OutcomeDone:
		o.books = []any{"done", 1}
		o.memory = memory{outcome: t.Outcome, ended: true}
		return o, nil
	case redrive.OutcomeDrop:
		o.books = []any{"dropped", 1}
		o.memory = memory{outcome: t.Outcome, reason: t.Reason, ended: true}
		return o, nil
	}
	if it.dead() {
		return o, s.settleDead(o, t)
	}
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
		o.books = []any{"done", 1, "repeated", 1}
		o.memory = memory{set: true}
		o.what, o.fresh = "wait", true
		it.msg.Generation++
		it.published, it.seq, it.attempts, it.failures, it.crashes = 0, 0, 0, 0, 0
		it.history, it.original = redrive.History{}, nil
		it.flags &^= flagSuspect
		it.lane = redrive.LaneFresh
	}
	return o, nil
}

// settleDead plans the settlement of a claimed dead letter that stays in the store.
func (s *Store) settleDead(o *changeOp, t *redrive.Settlement) error {
	it := o.it
	it.edit(t.Edit)
	switch t.Outcome {
	case redrive.OutcomeRepeat:
		o.revive("")
		it.due = span(t.After)
		return o.follow()
	case redrive.OutcomeRetry:
		it.record(t.Failure, false)
	case redrive.OutcomeRelease:
		it.attempts--
	default:
		it.record(t.Failure, false)
		it.due = 0
	}
	o.what = "die"
	o.fields = it.fields()
	return o.follow()
}

// revive makes the change a redrive.
func (o *changeOp) revive(plan string) {
	it := o.it
	o.what = "wait"
	o.memory.set = true
	it.msg.Generation++
	it.msg.Redrives++
	it.msg.Plan = plan
	it.lane, it.reason, it.died, it.seq = redrive.LaneRedrive, 0, 0, 0
	it.attempts, it.failures, it.crashes = 0, 0, 0
	it.flags &^= flagSuspect
	it.due, it.relative = 0, true
	if it.expires > 0 && it.expires <= it.now {
		it.msg.ExpiresAt, it.expires = time.Time{}, 0 // or it would expire again at once
	}
}

// edit replaces parts of a message and keeps the original.
func (it *item) edit(e *redrive.Edit) {
	if e == nil {
		return
	}
	m := it.msg
	e.Apply(&m)
	if it.original == nil {
		original := it.msg
		it.original = &original
	}
	if m.Key != it.msg.Key {
		it.flags &^= flagOrdered
		it.rekeyed = true
	}
	it.msg = m
}

// Extend implements redrive.Source.
func (s *Store) Extend(ctx context.Context, receipts []redrive.Receipt, lease time.Duration) []error {
	if s.parts != nil {
		return s.extendParts(ctx, receipts, lease)
	}
	errs := make([]error, len(receipts))
	byQueue := make(map[string][]int)
	for i := range receipts {
		byQueue[receipts[i].Queue] = append(byQueue[receipts[i].Queue], i)
	}
	for name, which := range byQueue {
		for len(which) > 0 {
			n := min(len(which), 500)
			s.extend(ctx, s.queue(name), receipts, which[:n], max(lease, minLease), errs)
			which = which[n:]
		}
	}
	if redrive.FirstError(errs) == nil {
		return nil
	}
	return errs
}

func (s *Store) extend(ctx context.Context, q *queue, receipts []redrive.Receipt, which []int, lease time.Duration, errs []error) {
	args := []any{span(lease)}
	for _, i := range which {
		p := positionOf(&receipts[i])
		if !p.ok || !q.names(p.place, receipts[i].ID) {
			p.place, p.holder = "i"+receipts[i].ID, "?"
		}
		args = append(args, p.place, p.holder)
	}
	got, err := s.conn.Write(ctx, scriptExtend, s.keys(q), args...)
	results := items(got)
	for n, i := range which {
		if errs[i] = s.fail(err); err == nil {
			errs[i] = codeError(number(at(results, n)))
		}
	}
}
