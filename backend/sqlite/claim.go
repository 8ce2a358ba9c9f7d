package sqlite

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// minLease is the shortest lease.
const minLease = 10 * time.Millisecond

// claimOp delivers messages.
type claimOp struct {
	op
	req    driver.ClaimRequest
	queue  *queue
	filter string
	result []redrive.Delivery
	err    error
}

// Claim implements driver.Source. It costs no sync: what a claim writes is one
// record, and losing it with the power loses no message.
func (s *Store) Claim(ctx context.Context, req driver.ClaimRequest) ([]redrive.Delivery, error) {
	if err := checkClaim(&req); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	q := s.queueNamed(req.Queue)
	if q == nil || s.nothingDue(q, &req) {
		return nil, s.closed()
	}
	o := &claimOp{op: newOp(req.Max, 0, false, false), req: req, queue: q}
	o.filter = filterName(&req)
	took, err := s.submit(lineDeliver, o, ctx.Done())
	if err != nil {
		return nil, err
	}
	if !took {
		return nil, ctx.Err()
	}
	return o.result, o.err
}

func checkClaim(req *driver.ClaimRequest) error {
	invalid := func(format string, args ...any) error {
		return &redrive.Error{Op: "claim", Queue: req.Queue, Err: fmt.Errorf("%w claim: "+format, append([]any{redrive.ErrInvalid}, args...)...)}
	}
	switch {
	case req.Max < 1:
		return invalid("max of %d: ask for at least 1", req.Max)
	case req.Lease < minLease:
		return invalid("lease of %s: at least %s", req.Lease, minLease)
	case int(req.Lane) >= driver.Lanes:
		return invalid("lane %d", req.Lane)
	}
	return driver.CheckQueue(req.Queue)
}

// nothingDue reports that a claim would find nothing, as far as can be seen
// without the writer.
func (s *Store) nothingDue(q *queue, req *driver.ClaimRequest) bool {
	now := s.now()
	if s.leaseEnd.Load() <= now {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	st := &q.shared
	switch {
	case req.Dead:
		return st.counts.dead() == 0
	case req.Expired:
		return st.counts.waiting() == 0
	case req.Isolated:
		return st.next[classSuspect] > now
	}
	return st.next[req.Lane] > now
}

// filterName names what a claim leaves out, so that each filter keeps its own
// cursor.
func filterName(req *driver.ClaimRequest) string {
	if len(req.Kinds)+len(req.ExceptKinds)+len(req.ExceptIDs) == 0 {
		return ""
	}
	return strings.Join(req.Kinds, "\x00") + "\x01" + strings.Join(req.ExceptKinds, "\x00") + "\x01" + strings.Join(req.ExceptIDs, "\x00")
}

func admits(req *driver.ClaimRequest, kind string) bool {
	return (len(req.Kinds) == 0 || slices.Contains(req.Kinds, kind)) && !slices.Contains(req.ExceptKinds, kind)
}

func (o *claimOp) end(err error) {
	if err != nil {
		o.result, o.err = nil, err
	}
}

func (o *claimOp) run(t *tx) {
	o.result, o.err = nil, nil
	if o.queue.id == 0 {
		return
	}
	o.err = t.item(func() error {
		if o.req.Dead {
			return o.claimDead(t)
		}
		rows, err := o.pick(t)
		if err != nil || len(rows) == 0 {
			return err
		}
		return o.deliver(t, rows)
	})
}

// pick chooses the rows to deliver.
func (o *claimOp) pick(t *tx) ([]row, error) {
	if o.req.Expired {
		return o.pickExpired(t)
	}
	class := int64(o.req.Lane)
	if o.req.Isolated {
		class = classSuspect
	}
	rows, next, err := o.scan(t, class)
	if err == nil && len(rows) == 0 && o.queue.state.ahead[class] {
		if err := t.catchUp(o.queue, class); err != nil {
			return nil, err
		}
		rows, next, err = o.scan(t, class)
	}
	if err == nil {
		o.setNext(t, class, next)
	}
	return rows, err
}

// setNext notes when the class has something due next. Only a claim without a
// filter knows.
func (o *claimOp) setNext(t *tx, class, next int64) {
	if o.filter == "" {
		t.touch(o.queue)
		if o.queue.state.ahead[class] {
			next = dueUnknown // so that the next claim catches up
		}
		o.queue.state.next[class] = next
	}
}

// scan reads a class in claim order from the filter's cursor on, which it moves; all
// suspects each time. It returns the rows to deliver and when the next one is due.
func (o *claimOp) scan(t *tx, class int64) (rows []row, next int64, err error) {
	from := place{}
	if class != classSuspect {
		from = o.queue.cursor(class, o.filter)
	}
	s := t.read(`SELECT ` + rowColumns + ` FROM waiting WHERE queue = ? AND class = ? AND (due, seq) > (?, ?) ORDER BY due, seq`)
	s.int(o.queue.id).int(class).int(from.due).int(from.seq)
	at := from
	next = dueNever
	for examined := 0; s.next(); examined++ {
		p := place{s.colInt(1), s.colInt(2)}
		if p.due > t.now || len(rows) == o.req.Max && t.s.leases.held(p.seq) == nil {
			if next = p.due; isAhead(t.now, p.due, s.colInt(8)) {
				t.touch(o.queue)
				o.queue.state.ahead[class] = true
			}
			break
		}
		if examined == redrive.Examined { // the writer has others to serve: go on with the next claim
			t.bump(o.queue)
			break
		}
		if t.s.leases.held(p.seq) == nil && o.passes(t, s, p.seq) {
			rows = append(rows, scanRow(s, 0))
		}
		at = p
	}
	if err := s.done(); err != nil {
		return nil, 0, err
	}
	if class != classSuspect && at != from {
		t.touch(o.queue)
		o.queue.setCursor(class, o.filter, at)
	}
	return rows, next, nil
}

// passes reports whether the row of a scan is what the claim asks for.
func (o *claimOp) passes(t *tx, s *stmt, seq int64) bool {
	return o.filter == "" || admits(&o.req, s.colText(11)) && !o.excepted(t, seq)
}

// excepted reports whether a message is one of ExceptIDs.
func (o *claimOp) excepted(t *tx, seq int64) bool {
	if len(o.req.ExceptIDs) == 0 {
		return false
	}
	s := t.read(`SELECT id FROM message WHERE seq = ?`).int(seq)
	found := s.next() && slices.Contains(o.req.ExceptIDs, s.colText(0))
	t.check(s.done())
	return found
}

// pickExpired chooses messages that have expired or are too old.
func (o *claimOp) pickExpired(t *tx) ([]row, error) {
	var rows []row
	take := func(s *stmt) (more bool) {
		r := scanRow(s, 0)
		if t.s.leases.held(r.seq) == nil && admits(&o.req, r.kind) && !o.excepted(t, r.seq) &&
			!slices.ContainsFunc(rows, func(have row) bool { return have.seq == r.seq }) {
			rows = append(rows, r)
		}
		return len(rows) < o.req.Max
	}
	s := t.read(`SELECT ` + rowColumns + ` FROM waiting WHERE queue = ? AND expires IS NOT NULL AND expires <= ? ORDER BY expires`)
	s.int(o.queue.id).int(t.now)
	for s.next() && take(s) { //nolint:revive // take does it
	}
	if err := s.done(); err != nil || o.req.MaxAge <= 0 || len(rows) == o.req.Max {
		return rows, err
	}
	oldest := t.now - int64(o.req.MaxAge)
	s = t.read(`SELECT ` + rowColumns + ` FROM waiting WHERE queue = ? AND born IS NOT NULL AND born <= ? ORDER BY born`)
	s.int(o.queue.id).int(oldest)
	for s.next() && take(s) { //nolint:revive // take does it
	}
	if err := s.done(); err != nil || len(rows) == o.req.Max {
		return rows, err
	}
	// The others stand in the order of their publication.
	s = t.read(`SELECT ` + prefixed("w", rowColumns) + `, m.published FROM waiting w INDEXED BY waiting_seq CROSS JOIN message m ON m.seq = w.seq
		WHERE w.queue = ? ORDER BY w.seq`).int(o.queue.id)
	for s.next() {
		if s.colNull(13) && (s.colInt(14) > oldest || !take(s)) {
			break
		}
	}
	return rows, s.done()
}

// prefixed qualifies a list of columns with a table.
func prefixed(table, columns string) string {
	return table + "." + strings.ReplaceAll(columns, ", ", ", "+table+".")
}

// deliver makes deliveries of rows, each under its lease, and writes their claim record.
func (o *claimOp) deliver(t *tx, rows []row) error {
	c := &claim{token: t.s.newTokens(len(rows)), isolated: o.req.Isolated, open: len(rows)}
	seqs := make([]int64, len(rows))
	result := make([]redrive.Delivery, len(rows))
	grown := make([]lease, len(rows))
	for i := range rows {
		r := &rows[i]
		seqs[i] = r.seq
		m, err := t.body(o.queue, r)
		if err != nil {
			return err
		}
		l := &grown[i]
		*l = lease{
			row: *r, queue: o.queue, id: m.ID, key: m.Key, size: int64(m.Size()), token: c.token + uint64(i),
			instance: o.req.Instance, until: later(t.now, o.req.Lease), claim: c, slot: -1,
			suspect: r.flags & flagSuspect,
		}
		t.addLease(l)
		result[i] = redrive.Delivery{
			Message: m.Message, Unfit: m.unfit(), Lane: redrive.Lane(r.lane), Attempt: int(r.attempts) + 1, Failures: int(r.failures), //nolint:gosec // a lane
			Crashes: int(r.crashes), Suspect: r.flags&flagSuspect != 0, LeasedAt: timeOf(t.now), Lease: o.req.Lease,
			Receipt: redrive.Receipt{Ref: m.Ref(), Token: l.token},
		}
	}
	o.result = result
	return t.write(`INSERT INTO claim (token, queue, isolated, seqs) VALUES (?, ?, ?, ?)`).
		int(int64(c.token)).int(o.queue.id).flag(c.isolated).blob(encodeSeqs(seqs)).run() //nolint:gosec // epochs are far below 2^31
}

// body reads the message of a row.
func (t *tx) body(q *queue, r *row) (stored, error) {
	s := t.read(`SELECT ` + messageColumns + ` FROM message WHERE seq = ?`).int(r.seq)
	if !s.next() {
		if err := s.done(); err != nil {
			return stored{}, err
		}
		return stored{}, &sqlError{code: corruptCode, text: fmt.Sprintf("a message of queue %s has no body", q.name)}
	}
	m := scanMessage(s, 0)
	m.Queue, m.Kind = q.name, r.kind
	return m, s.done()
}

// claimDead delivers dead letters. They get no claim record: a death of the process while
// one is processed leaves it among the dead.
func (o *claimOp) claimDead(t *tx) error {
	picks, err := o.pickDead(t)
	if err == nil && len(picks) == 0 && o.queue.state.deadAhead {
		if err := t.catchUpDead(o.queue); err != nil {
			return err
		}
		picks, err = o.pickDead(t)
	}
	if err != nil {
		return err
	}
	for _, p := range picks {
		d, m, err := t.deadRow(o.queue, p.seq)
		if err != nil {
			return err
		}
		l := &lease{
			row: d.row, queue: o.queue, id: m.ID, key: m.Key, size: int64(m.Size()), token: t.s.newTokens(1),
			instance: o.req.Instance, until: later(t.now, o.req.Lease), dead: true, slot: -1,
		}
		t.addLease(l)
		o.result = append(o.result, redrive.Delivery{
			Message: m.Message, Unfit: m.unfit(), Lane: redrive.Lane(d.lane), Attempt: int(d.attempts) + 1, Failures: int(d.failures), //nolint:gosec // a lane
			Crashes: int(d.crashes), Dead: p.reason, LeasedAt: timeOf(t.now), Lease: o.req.Lease,
			Receipt: redrive.Receipt{Ref: m.Ref(), Token: l.token},
		})
	}
	return nil
}

// deadPick is a dead letter to deliver.
type deadPick struct {
	seq    int64
	reason redrive.Reason
}

// pickDead chooses dead letters that are due.
func (o *claimOp) pickDead(t *tx) (picks []deadPick, err error) {
	s := t.read(`SELECT seq, kind, reason FROM dead INDEXED BY dead_due WHERE queue = ? AND due <= ? ORDER BY due, seq`)
	s.int(o.queue.id).int(t.now)
	for len(picks) < o.req.Max && s.next() {
		seq := s.colInt(0)
		if t.s.leases.held(seq) == nil && admits(&o.req, s.colText(1)) && !o.excepted(t, seq) {
			picks = append(picks, deadPick{seq, redrive.Reason(s.colInt(2))}) //nolint:gosec // a reason
		}
	}
	return picks, s.done()
}
