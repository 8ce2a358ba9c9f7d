package sqlite

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// Phases of a search within a queue.
const (
	phaseWaiting = iota
	phaseDead
	phaseKey // by key, waiting and dead
	phases
)

// cursor of a page: where the next one begins.
type pageCursor struct {
	queue, phase int64
	a, b         int64 // place within the phase
}

func (m pageCursor) String() string {
	return fmt.Sprintf("%d.%d.%s.%s", m.queue, m.phase, strconv.FormatInt(m.a, 36), strconv.FormatInt(m.b, 36))
}

func parseCursor(s string) (m pageCursor, err error) {
	if s == "" {
		return m, nil
	}
	parts := strings.Split(s, ".")
	bad := &redrive.Error{Op: "find", Err: fmt.Errorf("%w page cursor %q", redrive.ErrInvalid, s), Hint: "use the Next of the page before"}
	if len(parts) != 4 {
		return m, bad
	}
	for i, p := range []*int64{&m.queue, &m.phase, &m.a, &m.b} {
		base := 10
		if i > 1 {
			base = 36
		}
		if *p, err = strconv.ParseInt(parts[i], base, 64); err != nil {
			return m, bad
		}
	}
	return m, nil
}

// Find implements driver.Store. Waiting messages come in the order of their
// publication, dead letters in that of their death, queue by queue.
func (s *Store) Find(ctx context.Context, q redrive.Query) (driver.Page, error) {
	page := driver.Page{Complete: true}
	at, err := parseCursor(q.After)
	if err != nil {
		return page, err
	}
	err = s.read(ctx, func(c *conn) error {
		return snapshot(c, func() error {
			f := finder{s: s, read: c.stmt, held: s.heldLease, query: &q, at: at, page: &page}
			err := f.find()
			page.Examined, page.Index = f.examined, q.Text != "" && !f.scanned
			return err
		})
	})
	return page, err
}

// finder looks through the entries.
type finder struct {
	s        *Store
	read     func(string) *stmt
	held     func(seq int64) *lease
	query    *redrive.Query
	at       pageCursor
	page     *driver.Page
	examined int
	full     bool             // the page ended before the search
	texts    map[int64]*texts // by the number of the queue
	scanned  bool             // what no index of texts led to was looked at
}

func (f *finder) find() error {
	for _, q := range f.queues() {
		if q.number < f.at.queue {
			continue
		}
		if q.number > f.at.queue {
			f.at = pageCursor{queue: q.number}
		}
		for phase := f.at.phase; phase < phases; phase++ {
			if phase > f.at.phase {
				f.at = pageCursor{queue: q.number, phase: phase}
			}
			if !f.wants(phase) {
				continue
			}
			if err := f.search(q, phase); err != nil || f.full {
				return err
			}
		}
	}
	return nil
}

// queues returns the queues to search, in the order of their numbers.
func (f *finder) queues() []*queue {
	f.s.mu.Lock()
	defer f.s.mu.Unlock()
	var list []*queue
	for _, q := range f.s.queues {
		if q.number != 0 && (f.query.Queue == "" || f.query.Queue == q.name) {
			list = append(list, q)
		}
	}
	slices.SortFunc(list, func(a, b *queue) int { return int(a.number - b.number) })
	return list
}

// wants reports whether a phase can hold what is looked for.
func (f *finder) wants(phase int64) bool {
	q := f.query
	if q.Key != "" {
		return phase == phaseKey
	}
	dead := q.Reason != 0 || q.Signature != "" || q.State == redrive.StateDead
	switch phase {
	case phaseWaiting:
		return !dead
	case phaseDead:
		return dead || q.State == 0
	}
	return false
}

// search goes through one phase of a queue.
func (f *finder) search(q *queue, phase int64) error {
	switch index, err := f.byText(q, phase); {
	case err != nil:
		return err
	case index:
		return f.searchTexts(q)
	}
	f.scanned = true
	st := f.source(q, phase)
	var err error
	for err == nil && st.next() {
		if f.filled() {
			break
		}
		f.examined++
		seq := st.colInt(0)
		f.at.a, f.at.b = st.colInt(1), st.colInt(2)
		var e *redrive.Entry
		var ok bool
		switch phase {
		case phaseWaiting:
			r := scanRow(st, 3)
			e, ok, err = f.waitingEntry(q, &r)
		case phaseDead:
			d := scanDead(st, 3)
			e, ok, err = f.deadEntry(q, &d)
		default:
			e, ok, err = f.entry(q, seq)
		}
		if err == nil && ok {
			f.page.Entries = append(f.page.Entries, *e)
		}
	}
	if done := st.done(); err == nil {
		err = done
	}
	return err
}

// source reads the rows of a phase from the cursor on: seq, the place, and the row.
func (f *finder) source(q *queue, phase int64) *stmt {
	query := f.query
	switch {
	case query.Plan != "" && phase == phaseWaiting:
		return f.read(`SELECT w.seq, w.seq, 0, ` + prefixed("w", rowColumns) + ` FROM message m INDEXED BY message_plan CROSS JOIN waiting w ON w.queue = m.queue AND w.seq = m.seq
			WHERE m.queue = ? AND m.plan = ? AND m.seq > ? ORDER BY m.seq`).int(q.number).text(query.Plan).int(f.at.a)
	case query.Plan != "" && phase == phaseDead:
		return f.read(`SELECT d.seq, d.seq, 0, ` + prefixed("d", deadColumns) + ` FROM message m INDEXED BY message_plan CROSS JOIN dead d ON d.seq = m.seq
			WHERE m.queue = ? AND m.plan = ? AND m.seq > ? ORDER BY m.seq`).int(q.number).text(query.Plan).int(f.at.a)
	case phase == phaseWaiting:
		return f.read(`SELECT seq, seq, 0, ` + rowColumns + ` FROM waiting INDEXED BY waiting_seq WHERE queue = ? AND seq > ? ORDER BY seq`).
			int(q.number).int(f.at.a)
	case phase == phaseKey:
		return f.read(`SELECT seq, ordered, turn FROM keyed WHERE queue = ? AND key = ? AND (ordered, turn) > (?, ?) ORDER BY ordered, turn`).
			int(q.number).text(query.Key).int(f.at.a).int(f.at.b)
	}
	from, until := f.span()
	if query.Reason != 0 && query.Signature != "" {
		return f.read(`SELECT seq, died, seq, ` + deadColumns + ` FROM dead INDEXED BY dead_cause
			WHERE queue = ? AND reason = ? AND signature = ? AND (died, seq) > (?, ?) AND died <= ? ORDER BY died, seq`).
			int(q.number).int(int64(query.Reason)).text(query.Signature).int(from.a).int(from.b).int(until)
	}
	sql := `SELECT seq, died, seq, ` + deadColumns + ` FROM dead INDEXED BY dead_died
		WHERE queue = ? AND (died, seq) > (?, ?) AND died <= ? ORDER BY died, seq`
	if query.Edited {
		sql = `SELECT seq, died, seq, ` + deadColumns + ` FROM dead INDEXED BY dead_edited
			WHERE queue = ? AND (died, seq) > (?, ?) AND died <= ? AND flags & 4 ORDER BY died, seq`
	}
	return f.read(sql).int(q.number).int(from.a).int(from.b).int(until)
}

// span is where dead letters are looked for: behind the cursor, until a time.
func (f *finder) span() (from pageCursor, until int64) {
	from = pageCursor{a: f.at.a, b: f.at.b}
	if since := nanos(f.query.Since); from.a < since {
		from = pageCursor{a: since - 1, b: dueNever}
	}
	until = dueNever
	if !f.query.Until.IsZero() {
		until = nanos(f.query.Until)
	}
	return from, until
}

// filled ends the page before the next entry, if it is full or has looked at as many as it may.
func (f *finder) filled() bool {
	if len(f.page.Entries) == f.query.PageLimit() || f.examined == redrive.Examined {
		f.full = true
		f.page.Next = f.at.String()
		f.page.Complete = f.examined < redrive.Examined
	}
	return f.full
}

// entry reads a message by its seq, if it matches.
func (f *finder) entry(q *queue, seq int64) (*redrive.Entry, bool, error) {
	st := f.read(`SELECT ` + rowColumns + ` FROM waiting WHERE queue = ? AND seq = ?`).int(q.number).int(seq)
	if st.next() {
		r := scanRow(st, 0)
		if err := st.done(); err != nil {
			return nil, false, err
		}
		return f.waitingEntry(q, &r)
	}
	if err := st.done(); err != nil {
		return nil, false, err
	}
	return f.dead(q, seq)
}

// dead reads a dead letter by its seq, if it matches.
func (f *finder) dead(q *queue, seq int64) (*redrive.Entry, bool, error) {
	st := f.read(`SELECT ` + deadColumns + ` FROM dead WHERE seq = ? AND queue = ?`).int(seq).int(q.number)
	if st.next() {
		d := scanDead(st, 0)
		if err := st.done(); err != nil {
			return nil, false, err
		}
		return f.deadEntry(q, &d)
	}
	return nil, false, st.done()
}

func (f *finder) waitingEntry(q *queue, r *row) (*redrive.Entry, bool, error) {
	e := &redrive.Entry{State: redrive.StateWaiting, Due: timeOf(r.due)}
	if r.class == classBlocked {
		e.State = redrive.StateBlocked
	}
	if l := f.held(r.seq); l != nil {
		e.State, e.Until, e.Instance, e.Token = redrive.StateLeased, timeOf(l.until), l.instance, l.token
		r.attempts++
	}
	query := f.query
	if query.State != 0 && query.State != e.State || query.Reason != 0 || query.Signature != "" {
		return nil, false, nil
	}
	if query.Text != "" {
		if last, err := readFailure(f.read, r.seq, r.flags); err != nil || !f.s.masks.HasText(query, q.name, last) {
			return nil, false, err
		}
	}
	return f.fill(q, e, r)
}

func (f *finder) deadEntry(q *queue, d *deadRow) (*redrive.Entry, bool, error) {
	query := f.query
	if query.State != 0 && query.State != redrive.StateDead || query.Reason != 0 && query.Reason != d.reason ||
		query.Signature != "" && query.Signature != d.signature {
		return nil, false, nil
	}
	if query.Text != "" {
		if ok, err := f.hasText(q, d); err != nil || !ok {
			return nil, false, err
		}
	}
	e := &redrive.Entry{State: redrive.StateDead, Reason: d.reason, DiedAt: timeOf(d.died)}
	return f.fill(q, e, &d.row)
}

// fill adds what the row and the message hold, and applies what is left of the
// query.
func (f *finder) fill(q *queue, e *redrive.Entry, r *row) (*redrive.Entry, bool, error) {
	query := f.query
	if query.Kind != "" && query.Kind != r.kind || query.Edited && r.flags&flagEdited == 0 {
		return nil, false, nil
	}
	body := query.Bodies || query.Body != "" || query.Header != ""
	m, ok, err := f.message(r.seq, body)
	if err != nil {
		return nil, false, err
	}
	if !ok {
		return nil, false, &sqlError{code: corruptCode, text: fmt.Sprintf("a message of queue %s has no body", q.name)}
	}
	m.Queue, m.Kind = q.name, r.kind
	e.Message = m
	e.Lane = redrive.Lane(r.lane) //nolint:gosec // a lane
	e.Attempts, e.Crashes, e.Suspect = int(r.attempts), int(r.crashes), r.flags&flagSuspect != 0
	e.History.Count = int(r.failures + r.earlier)
	rest := *query
	if rest.Edited = false; !driver.MatchMessage(&rest, e) { // the row's flag said whether it was edited
		return nil, false, nil
	}
	if !query.Bodies {
		e.Body, e.Headers = nil, nil
		return e, true, nil
	}
	return e, true, f.history(e, r)
}

// message reads what a message carries.
func (f *finder) message(seq int64, body bool) (m redrive.Message, ok bool, err error) {
	sql := `SELECT ` + messageColumns + ` FROM message WHERE seq = ?`
	if !body {
		sql = `SELECT id, key, NULL, published, expires, reply_to, generation, redrives, plan, origin, edited_from, NULL, NULL FROM message WHERE seq = ?`
	}
	st := f.read(sql).int(seq)
	if ok = st.next(); ok {
		m = scanMessage(st, 0).Message
	}
	return m, ok, st.done()
}

// history reads failures and original.
func (f *finder) history(e *redrive.Entry, r *row) error {
	if r.flags&(flagFirst|flagLast) != 0 {
		st := f.read(`SELECT slot, json FROM failure WHERE slot BETWEEN ? AND ?`).int(2 * r.seq).int(2*r.seq + 1)
		for st.next() {
			failure := driver.DecodeFailure(st.colBytes(1))
			if st.colInt(0) == 2*r.seq {
				e.History.First = failure
			} else {
				e.History.Last = failure
			}
		}
		if err := st.done(); err != nil {
			return err
		}
	}
	if r.flags&flagEdited == 0 {
		return nil
	}
	st := f.read(`SELECT ` + originalColumns + ` FROM original WHERE seq = ?`).int(r.seq)
	if st.next() {
		m, o := e.Message, scanOriginal(st, 0)
		m.Kind, m.Key, m.Headers, m.Body = o.Kind, o.Key, o.Headers, o.Body
		e.Original = &m
	}
	return st.done()
}
