package redisstream

import (
	"context"
	"errors"
	"fmt"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/redisconn"
)

// Bounds of one script call, so that none holds the server up for long.
const (
	publishPage  = 500
	publishBytes = 1 << 20
	stepPage     = 100
)

// SetMasks implements driver.Masked.
func (s *Store) SetMasks(m driver.Masks) {
	s.masks = m
	for _, p := range s.parts {
		p.masks = m
	}
}

// Publish implements redrive.Sink. It fills in an empty ID only when the message was
// stored.
func (s *Store) Publish(ctx context.Context, msgs []redrive.Message) []error {
	if s.parts != nil {
		return s.publishParts(ctx, msgs)
	}
	if q := s.together(msgs); q != nil {
		return s.publishTogether(ctx, q, msgs)
	}
	return s.publish(ctx, msgs)
}

func (s *Store) publish(ctx context.Context, msgs []redrive.Message) []error {
	errs := make([]error, len(msgs))
	var plain, special []int
	for i := range msgs {
		m := &msgs[i]
		if errs[i] = m.Validate(); errs[i] != nil {
			continue
		}
		if isPlain(m) {
			plain = append(plain, i)
		} else {
			special = append(special, i)
		}
	}
	for len(plain) > 0 {
		plain = s.publishPlain(ctx, msgs, plain, errs)
	}
	for len(special) > 0 {
		n := min(stepPage, len(special))
		s.publishSpecial(ctx, msgs, special[:n], errs)
		special = special[n:]
	}
	s.stats.published.Add(int64(len(msgs)))
	if driver.FirstError(errs) == nil {
		return nil
	}
	return errs
}

// isPlain says that an entry of the stream is all that a message needs.
func isPlain(m *redrive.Message) bool {
	return m.ID == "" && m.Key == "" && m.Delay == 0 && m.DeliverAt.IsZero() && m.ExpiresAt.IsZero()
}

// publishPlain publishes a page of messages of one queue and returns the others.
func (s *Store) publishPlain(ctx context.Context, msgs []redrive.Message, which []int, errs []error) (rest []int) {
	q := s.queue(msgs[which[0]].Queue)
	args := make([]any, 2, 2+min(len(which), publishPage))
	args[0] = q.name
	page := make([]int, 0, min(len(which), publishPage))
	size, bytes := 0, 0
	for n, i := range which {
		if msgs[i].Queue != q.name {
			rest = append(rest, i)
			continue
		}
		if len(page) == publishPage || bytes > publishBytes {
			rest = append(rest, which[n:]...)
			break
		}
		e, err := seal(&msgs[i], new(stored))
		if err != nil {
			errs[i] = err
			continue
		}
		args = append(args, e)
		page = append(page, i)
		size += msgs[i].Size() + idLength
		bytes += len(e)
	}
	if len(page) == 0 {
		return rest
	}
	args[1] = size
	got, err := s.conn.Write(ctx, scriptPublish, q.publishing, args...)
	entries := items(got)
	if err == nil && len(entries) != len(page) && len(entries) != 1 {
		err = fmt.Errorf("%w: the script answered %d of %d", redrive.ErrUnknown, len(entries), len(page))
	}
	for n, i := range page {
		switch {
		case err != nil:
			errs[i] = s.fail(err)
		case n < len(entries):
			msgs[i].ID = q.id(text(entries[n]))
		default: // of the same millisecond, one after the other
			ms, first, _ := entryNumbers(text(entries[0]))
			msgs[i].ID = q.idOf(ms, first+uint64(n))
		}
	}
	return rest
}

// newOp is a message that a step adds.
type newOp struct {
	m       *redrive.Message
	entry   *redrive.Entry // of Put; nil: a publish
	account string
	restore bool // an id that is remembered only as archived or dropped is free
	chosen  bool
	q       *queue
}

// pack adds the operation to a step. It gives the message its id, unless an entry of the
// stream will.
func (o *newOp) pack(p *packed, st *step) error {
	o.q = st.s.place(o.m)
	o.chosen = o.m.ID != ""
	hash := ""
	if o.chosen {
		hash = fmt.Sprintf("%016x", st.s.masks.BodyHash(o.m))
	}
	what, h := "wait", head{due: span(o.m.Delay), relative: true}
	if o.m.Delay > 0 || !o.m.DeliverAt.IsZero() || o.entry != nil && (o.entry.Lane == redrive.LaneRetry || o.entry.Due.After(o.entry.PublishedAt)) {
		h.flags = flagDelayed
	}
	var kept stored
	var fields []string
	switch {
	case o.entry != nil:
		what = o.put(&h)
		kept.history, kept.original = o.entry.History, o.entry.Original
		kept.sum, kept.originalSum = checksumOf(o.entry.Checksum), checksumOf(o.entry.OriginalChecksum)
	case isPlain(o.m):
		what = "entry"
	}
	if !o.chosen && what != "entry" {
		o.m.ID = o.q.s.newID()
	}
	if at := micros(o.m.DeliverAt); !o.m.DeliverAt.IsZero() && (o.entry == nil || o.entry.Due.IsZero()) {
		// The later of both decides, and only the server knows its now.
		h.due, h.relative = st.laterOf(h.due, at)
	}
	if !o.m.ExpiresAt.IsZero() {
		h.expires = max(micros(o.m.ExpiresAt), 1)
	}
	e, err := seal(o.m, &kept)
	if err != nil {
		return err
	}
	if what == "die" {
		it := &item{q: o.q, msg: *o.m, stored: kept, head: h}
		it.reason = o.entry.Reason
		fields = it.fields()
	}
	p.list(11)
	p.str("n")
	p.num(st.index(o.q))
	p.str(o.m.ID)
	p.str(hash)
	p.str(what)
	h.pack(p)
	p.bytes(e)
	p.str(o.account)
	p.list(len(fields))
	for _, f := range fields {
		p.str(f)
	}
	p.str(kept.signature())
	p.num(int64(bit(o.restore)))
	return nil
}

// put fills in the head of an entry that is put as it is.
func (o *newOp) put(h *head) (what string) {
	e := o.entry
	h.lane, h.attempts, h.crashes, h.failures, h.token = e.Lane, int64(e.Attempts), int64(e.Crashes), int64(e.History.Count), int64(e.Token) //nolint:gosec // small
	if !e.PublishedAt.IsZero() {
		h.published = micros(e.PublishedAt)
	}
	if e.State == redrive.StateDead {
		h.reason, h.due, h.relative = e.Reason, 0, true
		if !e.DiedAt.IsZero() {
			h.died = micros(e.DiedAt)
		}
		return "die"
	}
	if e.Suspect {
		h.flags |= flagSuspect
	}
	if !e.Due.IsZero() {
		h.due, h.relative = micros(e.Due), false
	}
	return "wait"
}

// result reads what became of the message.
func (o *newOp) result(ctx context.Context, s *Store, got []any) error {
	switch code := number(at(got, 0)); code {
	case codeDone:
		if entry := text(at(got, 1)); entry != "" {
			o.m.ID = o.q.id(entry)
		}
		return nil
	case codeTaken:
		return s.compare(ctx, o.m)
	default:
		return codeError(code)
	}
}

// compare tells a repeated publish from another message where the id is not remembered.
func (s *Store) compare(ctx context.Context, m *redrive.Message) error {
	got, err := s.Get(ctx, []redrive.Ref{m.Ref()})
	if err != nil {
		return err
	}
	if e := got[0]; e != nil {
		first := &e.Message
		if e.Original != nil {
			first = e.Original
		}
		if s.masks.BodyHash(first) == s.masks.BodyHash(m) {
			return redrive.ErrDuplicate
		}
	}
	return redrive.ErrConflict
}

// publishSpecial publishes a page of messages that need more than an entry.
func (s *Store) publishSpecial(ctx context.Context, msgs []redrive.Message, which []int, errs []error) {
	st := s.step(ctx)
	ops := make([]*newOp, 0, len(which))
	index := make([]int, 0, len(which))
	for _, i := range which {
		o := &newOp{m: &msgs[i], account: "published"}
		if err := st.add(o); err != nil {
			errs[i] = err
			continue
		}
		ops, index = append(ops, o), append(index, i)
	}
	results, err := st.run(ctx, scriptAdd)
	for n, i := range index {
		if errs[i] = err; err == nil {
			errs[i] = ops[n].result(ctx, s, items(at(results, n)))
		}
		if !ops[n].chosen && errs[i] != nil && !errors.Is(errs[i], redrive.ErrUnknown) {
			msgs[i].ID = ""
		}
	}
}

// Codes of a step's results; see step.lua.
const (
	codeDone = iota
	codeLeaseLost
	codeNotFound
	codeDuplicate
	codeConflict
	codeTaken
	codeLeased
	codeChanged
)

func codeError(code int64) error {
	switch code {
	case codeDone:
		return nil
	case codeLeaseLost:
		return redrive.ErrLeaseLost
	case codeNotFound:
		return redrive.ErrNotFound
	case codeDuplicate:
		return redrive.ErrDuplicate
	case codeConflict:
		return redrive.ErrConflict
	case codeLeased:
		return redrive.ErrState
	}
	return fmt.Errorf("%w: the message was changed meanwhile", redrive.ErrState)
}

// operation is a part of a step.
type operation interface {
	pack(p *packed, st *step) error
}

// step is a script call that changes messages.
type step struct {
	s       *Store
	ctx     context.Context
	queues  []*queue
	places  map[*queue]int64
	records packed
	nrec    int
	ops     []any
	now     int64 // by the server, as far as it is known; 0: not yet
	err     error
}

func (s *Store) step(ctx context.Context) *step {
	return &step{s: s, ctx: ctx, places: make(map[*queue]int64)}
}

// index returns the number of a queue within the step.
func (st *step) index(q *queue) int64 {
	n, ok := st.places[q]
	if !ok {
		n = int64(len(st.queues))
		st.places[q] = n
		st.queues = append(st.queues, q)
	}
	return n
}

// laterOf returns the later of a delay and a time. Which that is depends on the server's
// clock, which is asked once a step where both are given.
func (st *step) laterOf(delay, at int64) (due int64, relative bool) {
	if st.now == 0 && st.err == nil {
		var now int64
		t, err := st.s.Now(st.ctx)
		if err == nil {
			now = micros(t)
		}
		st.now, st.err = now, err
	}
	if st.now+delay >= at {
		return delay, true
	}
	return at, false
}

func (st *step) add(o operation) error {
	var p packed
	if err := o.pack(&p, st); err != nil {
		return err
	}
	st.ops = append(st.ops, []byte(p))
	return nil
}

// run runs the step and returns a result for each operation.
func (st *step) run(ctx context.Context, script *redisconn.Script) ([]any, error) {
	if st.err != nil || len(st.ops)+st.nrec == 0 {
		return nil, st.s.fail(st.err)
	}
	var names, records packed
	names.list(len(st.queues))
	for _, q := range st.queues {
		names.str(q.name)
	}
	records.list(st.nrec)
	records = append(records, st.records...)
	args := append([]any{[]byte(names), []byte(records)}, st.ops...)
	got, err := st.s.conn.Write(ctx, script, st.s.keys(st.queues...), args...)
	if err != nil {
		return nil, st.s.fail(err)
	}
	answer := items(got)
	if number(at(answer, 0)) == 1 {
		return nil, redrive.ErrVersion
	}
	st.now = number(at(answer, 1))
	return items(at(answer, 2)), nil
}
