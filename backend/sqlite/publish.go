package sqlite

import (
	"context"
	"encoding/hex"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// publishOp stores messages.
type publishOp struct {
	op
	store  *Store
	msgs   []redrive.Message
	queues []*queue
	errs   []error // of validation, kept over a repetition
	result []error
	ids    []string        // that the store made
	msg    redrive.Message // the one that is written
}

// SetMasks implements driver.Masked.
func (s *Store) SetMasks(m driver.Masks) { s.masks = m }

// Publish implements redrive.Sink. It returns after the messages are synced. ctx
// withdraws the call until the writer has begun with it; after that the outcome is
// awaited, which takes one commit.
func (s *Store) Publish(ctx context.Context, msgs []redrive.Message) []error {
	if err := ctx.Err(); err != nil {
		return fillErrors(len(msgs), err)
	}
	o := &publishOp{store: s, msgs: msgs, errs: make([]error, len(msgs)), queues: make([]*queue, len(msgs))}
	bytes, ok := 0, 0
	for i := range msgs {
		if o.errs[i] = msgs[i].Validate(); o.errs[i] != nil {
			continue
		}
		bytes += msgs[i].Size()
		ok++
	}
	if ok == 0 {
		return o.errs
	}
	o.op = newOp(len(msgs), bytes, true, true)
	took, err := s.submit(linePublish, o, ctx.Done())
	if err != nil {
		return fillErrors(len(msgs), err)
	}
	if !took {
		return fillErrors(len(msgs), ctx.Err())
	}
	if driver.FirstError(o.result) == nil {
		return nil
	}
	return o.result
}

func fillErrors(n int, err error) []error {
	errs := make([]error, n)
	for i := range errs {
		errs[i] = err
	}
	return errs
}

func (o *publishOp) run(t *tx) {
	o.result = append(o.result[:0], o.errs...)
	o.ids = make([]string, len(o.msgs))
	for i := range o.msgs {
		if o.result[i] != nil {
			continue
		}
		o.result[i] = t.item(func() error {
			o.msg = o.msgs[i] // the caller sees the id only after the commit
			q, err := t.queue(o.msg.Queue)
			if err != nil {
				return err
			}
			err = t.publish(q, &o.msg)
			o.ids[i] = o.msg.ID
			return err
		})
	}
}

func (o *publishOp) end(err error) {
	if err != nil {
		for i := range o.msgs {
			if o.errs[i] == nil {
				o.errs[i] = err
			}
		}
		o.result = o.errs
		return
	}
	for i := range o.msgs {
		if o.result[i] == nil {
			o.msgs[i].ID = o.ids[i]
		}
	}
}

// publish stores one valid message as waiting, filling in its id. It fails with
// ErrDuplicate or ErrConflict before it has written anything.
func (t *tx) publish(q *queue, m *redrive.Message) error {
	m.PublishedAt = timeOf(t.now)
	due := later(t.now, m.Delay)
	if !m.DeliverAt.IsZero() {
		due = max(due, nanos(m.DeliverAt))
	}
	t.count(q, countPublished, 1)
	r := row{lane: int64(redrive.LaneFresh), kind: m.Kind, expires: nanos(m.ExpiresAt)}
	r.setDue(t.now, due)
	if err := t.store(q, m, &r); err != nil {
		t.count(q, countPublished, -1)
		return err
	}
	return nil
}

// store gives a message its id and place, and stores it as waiting; r holds what
// else its row shall have.
func (t *tx) store(q *queue, m *redrive.Message, r *row) error {
	if err := t.identify(q, m, r); err != nil {
		return err
	}
	turn, head, err := t.enterKey(q, m.Key, r.seq)
	if err != nil {
		return err
	}
	r.turn, r.class = turn, r.openClass()
	if !head {
		r.class = classBlocked
	}
	if isFresh(r, m) {
		return t.hold(q, r, m)
	}
	if err := t.insertMessage(q, r.seq, summed(m)); err != nil {
		return err
	}
	return t.insertWaiting(q, r, int64(m.Size()))
}

// identify makes the message's id and seq. An id that the caller chose is
// remembered; one of the store's own is found again by the time stamp in it.
func (t *tx) identify(q *queue, m *redrive.Message, r *row) error {
	fresh := redrive.NewID()
	seq, _ := seqOf(fresh)
	if seq <= t.s.lastSeq { // the clock was set back while the store was closed
		seq = t.s.lastSeq + 1
	} else if m.ID == "" {
		m.ID = fresh
		r.seq, t.s.lastSeq = seq, seq
		return nil
	}
	if m.ID == "" {
		m.ID = fresh
	}
	hash := t.s.masks.BodyHash(m)
	if err := t.checkID(q, m.ID, hash); err != nil {
		return err
	}
	r.seq, t.s.lastSeq = seq, seq
	r.flags |= flagChosen
	return t.write(`INSERT OR REPLACE INTO chosen (queue, id, seq, hash, outcome, reason, at, keep, until) VALUES (?, ?, ?, ?, 0, 0, ?, ?, NULL)`).
		int(q.id).text(m.ID).int(seq).int(int64(hash)).int(t.now).int(int64(q.remember())).run() //nolint:gosec // the bits are what counts
}

// forgetRemoved forgets an id whose message was archived or dropped, so that it can be put back.
func (t *tx) forgetRemoved(q *queue, id string) error {
	if q.id == 0 || id == "" {
		return nil
	}
	return t.write(`DELETE FROM chosen WHERE queue = ? AND id = ? AND until IS NOT NULL AND outcome IN (?, ?)`).
		int(q.id).text(id).int(int64(redrive.OutcomeDead)).int(int64(redrive.OutcomeDrop)).run()
}

// checkID reports whether an id was accepted before.
func (t *tx) checkID(q *queue, id string, hash uint64) error {
	s := t.read(`SELECT hash FROM chosen WHERE queue = ? AND id = ? AND (until IS NULL OR until > ?)`)
	s.int(q.id).text(id).int(t.now)
	if s.next() {
		before := uint64(s.colInt(0)) //nolint:gosec // the bits are what counts
		if err := s.done(); err != nil {
			return err
		}
		return duplicate(before == hash)
	}
	if err := s.done(); err != nil {
		return err
	}
	seq, ok := seqOf(id)
	if !ok {
		return nil
	}
	m, found, err := t.load(q, seq)
	if err != nil || !found || m.ID != id {
		return err
	}
	return duplicate(t.s.masks.BodyHash(&m.Message) == hash)
}

func duplicate(same bool) error {
	if same {
		return redrive.ErrDuplicate
	}
	return redrive.ErrConflict
}

// seqOf returns the time stamp of a UUIDv7 with its fraction, which is the seq of
// a message whose id the store made.
func seqOf(id string) (int64, bool) {
	if len(id) != 36 || id[8] != '-' || id[13] != '-' || id[14] != '7' || id[18] != '-' || id[23] != '-' {
		return 0, false
	}
	var digits [16]byte
	copy(digits[:8], id[:8])
	copy(digits[8:12], id[9:13])
	copy(digits[12:15], id[15:18])
	digits[15] = '0'
	var b [8]byte
	if _, err := hex.Decode(b[:], digits[:]); err != nil {
		return 0, false
	}
	var n uint64
	for _, c := range b {
		n = n<<8 | uint64(c)
	}
	return int64(n >> 4), true
}

// lookup returns the seq of a message by its id, or 0.
func (t *tx) lookup(q *queue, id string) (int64, error) {
	return lookup(t.read, q.id, id)
}

func lookup(read func(string) *stmt, queue int64, id string) (int64, error) {
	if seq, ok := seqOf(id); ok {
		s := read(`SELECT id FROM message WHERE seq = ? AND queue = ?`).int(seq).int(queue)
		found := s.next() && s.colText(0) == id
		if err := s.done(); err != nil || found {
			return seq, err
		}
	}
	s := read(`SELECT m.seq FROM chosen c JOIN message m ON m.seq = c.seq WHERE c.queue = ? AND c.id = ? AND m.queue = c.queue AND m.id = c.id`)
	s.int(queue).text(id)
	var seq int64
	if s.next() {
		seq = s.colInt(0)
	}
	return seq, s.done()
}

// load reads a message, wherever it stands.
func (t *tx) load(q *queue, seq int64) (m stored, found bool, err error) {
	s := t.read(`SELECT ` + messageColumns + `, coalesce((SELECT kind FROM waiting w WHERE w.queue = m.queue AND w.seq = m.seq),
		(SELECT kind FROM dead d WHERE d.seq = m.seq)) FROM message m WHERE seq = ? AND queue = ?`).int(seq).int(q.id)
	if s.next() {
		m = scanMessage(s, 0)
		m.Queue, m.Kind, found = q.name, s.colText(messageWidth), true
	}
	return m, found, s.done()
}

// queue returns a queue, making it if it is new.
func (t *tx) queue(name string) (*queue, error) {
	q := t.s.queueNamed(name)
	if q == nil {
		if err := driver.CheckQueue(name); err != nil {
			return nil, err
		}
		q = t.s.addQueue(name)
	}
	if q.id != 0 {
		return q, nil
	}
	s := t.write(`INSERT INTO queue (name, remember) VALUES (?, ?) RETURNING queue`).text(name).int(int64(driver.DefaultRemember))
	var id int64
	for s.next() {
		id = s.colInt(0)
	}
	if err := s.done(); err != nil {
		return nil, err
	}
	q.id = id
	t.touch(q)
	t.undo = append(t.undo, undo{made: q})
	return q, nil
}

// maxRemember keeps the end of a memory within what can be stored.
const maxRemember = 100 * 365 * 24 * time.Hour

// remember is how long an id of the queue is kept after its message ended.
func (q *queue) remember() time.Duration {
	if q.settings.Remember > 0 {
		return min(q.settings.Remember, maxRemember)
	}
	return driver.DefaultRemember
}

// ended notes how a message with a chosen id ended, from when on it is kept for a
// while.
func (t *tx) ended(q *queue, id string, flags int64, o redrive.Outcome, reason redrive.Reason) error {
	if flags&flagChosen == 0 {
		return nil
	}
	return t.write(`UPDATE chosen SET outcome = ?, reason = ?, at = ?, until = ? + keep WHERE queue = ? AND id = ?`).
		int(int64(o)).int(int64(reason)).int(t.now).int(t.now).int(q.id).text(id).run()
}

// became notes what a message with a chosen id is now, while it is there.
func (t *tx) became(q *queue, id string, flags int64, o redrive.Outcome, reason redrive.Reason) error {
	if flags&flagChosen == 0 {
		return nil
	}
	return t.write(`UPDATE chosen SET outcome = ?, reason = ?, at = ?, until = NULL WHERE queue = ? AND id = ?`).
		int(int64(o)).int(int64(reason)).int(t.now).int(q.id).text(id).run()
}
