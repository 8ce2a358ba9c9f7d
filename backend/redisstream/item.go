package redisstream

import (
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// headLength is the length of a blob's head; see HEAD in lib.lua.
const headLength = 72

// Flags of a head.
const (
	flagSuspect    = 1
	flagOrdered    = 2
	flagRemembered = 4
	flagDelayed    = 8 // a delay, a retry or a schedule asked for its due time
)

// head is what the scripts keep of an indexed message. Times are microseconds.
type head struct {
	lane                               redrive.Lane
	flags                              byte
	reason                             redrive.Reason
	attempts, crashes, failures, token int64
	rev                                int64
	due, published, expires, died      int64
	seq, cseq                          int64
	relative                           bool // due counts from the step's now
}

func parseHead(b string) (h head, ok bool) {
	if len(b) < headLength {
		return h, false
	}
	raw := []byte(b[:headLength])
	u32 := func(at int) int64 { return int64(binary.LittleEndian.Uint32(raw[at:])) }
	f64 := func(at int) int64 { return int64(math.Float64frombits(binary.LittleEndian.Uint64(raw[at:]))) }
	h = head{
		lane: redrive.Lane(raw[0]), flags: raw[1], reason: redrive.Reason(raw[2]),
		attempts: u32(4), crashes: u32(8), failures: u32(12), token: u32(16), rev: u32(20),
		due: f64(24), published: f64(32), expires: f64(40), died: f64(48), seq: f64(56), cseq: f64(64),
	}
	return h, true
}

// pack adds the head to a script's argument.
func (h *head) pack(p *packed) {
	p.list(14)
	for _, n := range []int64{int64(h.lane), int64(h.flags), int64(h.reason), h.attempts, h.crashes, h.failures, h.token,
		h.due, int64(bit(h.relative)), h.published, h.expires, h.died, h.seq, h.cseq} {
		p.num(n)
	}
}

// holder is who has or had a message under a lease; see hand and batches in the scripts.
type holder struct {
	token, attempts, crashes int64
	isolated, suspect        bool
	nonce                    string
	instance                 string
}

func parseHolder(s string) (h holder, ok bool) {
	var parts [6]string
	for i := range 5 {
		var ok bool
		if parts[i], s, ok = strings.Cut(s, " "); !ok {
			return h, false
		}
	}
	parts[5] = s
	var n [4]int64
	for i := range n {
		v, err := strconv.ParseInt(parts[i], 10, 64)
		if err != nil {
			return h, false
		}
		n[i] = v
	}
	return holder{token: n[0], attempts: n[1], crashes: n[2], isolated: n[3]&1 != 0, suspect: n[3]&2 != 0, nonce: parts[4], instance: parts[5]}, true
}

// item is a message as a script showed it.
type item struct {
	head
	stored
	q       *queue
	msg     redrive.Message
	place   string // "s" and an entry, "i" or "d" and an id
	holder  string
	held    holder
	until   int64
	now     int64 // when it was read, by the server
	leased  bool
	blocked bool
	rekeyed bool // an edit gave it another key
	lost    bool // its entry was deleted by another client
	bad     error
	raw     []any // of an entry that could not be understood
}

func (it *item) dead() bool    { return it.place[0] == 'd' }
func (it *item) suspect() bool { return it.flags&flagSuspect != 0 }

// decode makes an item of what a script showed.
func (q *queue) decode(place string, raw any, who string, until, now int64) (*item, error) {
	it := &item{q: q, place: place, holder: who, until: until, now: now}
	it.msg.Queue, it.msg.ID = q.name, place[1:]
	if envelope, ok := raw.(string); ok && place[0] == 's' {
		it.entry([]any{field, envelope})
	} else if place[0] == 's' {
		it.entry(items(raw))
	} else if err := it.blob(text(raw)); err != nil {
		return nil, &redrive.Error{Op: "read", Queue: q.name, ID: it.msg.ID, Err: err, Hint: "redrive verify tells more"}
	}
	it.hold()
	return it, nil
}

// hold applies what the newest holder left: the state under a running lease, or of a
// claim that ended without a settlement.
func (it *item) hold() {
	if it.holder == "" {
		return
	}
	h, ok := parseHolder(it.holder)
	if !ok {
		return
	}
	it.held = h
	it.token, it.attempts = h.token, h.attempts
	it.leased = it.until > it.now
	if it.dead() {
		return
	}
	it.crashes = h.crashes
	it.flags &^= flagSuspect
	if h.suspect || !it.leased {
		it.flags |= flagSuspect
	}
	if !it.leased {
		it.due = it.until
		if h.isolated {
			it.crashes++
		}
	}
}

// late takes back what a lease that ran out has changed: its holder lives after all.
func (it *item) late() {
	if it.leased || it.holder == "" {
		return
	}
	it.flags &^= flagSuspect
	if it.held.suspect {
		it.flags |= flagSuspect
	}
	if it.held.isolated {
		it.crashes--
	}
}

func (it *item) entry(fields []any) {
	entry := it.place[1:]
	it.msg.ID = it.q.id(entry)
	ms, _, _ := entryNumbers(entry)
	it.published = int64(ms) * 1000 //nolint:gosec // a time
	it.due = it.published
	it.msg.PublishedAt = moment(it.published)
	switch {
	case len(fields) == 0:
		it.lost, it.bad = true, errTrimmed
	case len(fields) == 2 && text(fields[0]) == field && text(fields[1]) != "" && text(fields[1])[0] == envelopeVersion:
		it.bad = unseal(text(fields[1]), &it.msg, &it.stored)
	default:
		it.bad = foreign(fields, &it.msg)
	}
	if it.bad != nil {
		it.raw = fields
		it.msg = redrive.Message{ID: it.msg.ID, Queue: it.q.name, PublishedAt: it.msg.PublishedAt, Body: rawFields(fields)}
		it.stored = stored{}
	}
}

// damaged makes a message of an envelope that cannot be taken apart: it was written by this
// store, so it does not match any checksum. Its bytes become the body.
func (it *item) damaged(envelope string) {
	it.msg = redrive.Message{ID: it.msg.ID, Queue: it.q.name, Body: []byte(envelope)}
	it.stored = stored{sum: checksum{^driver.Checksum(&it.msg), true}}
}

func (it *item) blob(b string) error {
	var ok bool
	if it.head, ok = parseHead(b); !ok {
		return fmt.Errorf("%w: a head of %d bytes", redrive.ErrCorrupt, len(b))
	}
	if unseal(b[headLength:], &it.msg, &it.stored) != nil {
		it.damaged(b[headLength:])
	}
	it.msg.PublishedAt = moment(it.published)
	return nil
}

func (it *item) state() redrive.State {
	switch {
	case it.dead():
		return redrive.StateDead
	case it.leased:
		return redrive.StateLeased
	case it.blocked:
		return redrive.StateBlocked
	}
	return redrive.StateWaiting
}

// show is what a look into the store shows.
func (it *item) show(bodies bool) redrive.Entry {
	e := redrive.Entry{
		Message: it.msg, State: it.state(), Lane: it.lane,
		Attempts: int(it.attempts), Crashes: int(it.crashes), Suspect: it.suspect(),
	}
	switch {
	case it.leased:
		e.Until, e.Instance, e.Token = moment(it.until), it.held.instance, uint64(it.held.token) //nolint:gosec // never negative
	case !it.dead():
		e.Due = moment(it.due)
	}
	if it.dead() {
		e.Reason, e.DiedAt = it.reason, moment(it.died)
	}
	if bodies {
		e.History, e.Original = it.history, it.original
		e.Checksum, e.OriginalChecksum = it.sum.shown(), it.originalSum.shown()
	} else {
		e.Body, e.Headers, e.History.Count = nil, nil, it.history.Count
	}
	return e
}

// dueIn makes a message due a while after the step.
func (it *item) dueIn(d time.Duration) {
	it.due, it.relative = span(d), true
	it.flags &^= flagDelayed
	if it.due > 0 {
		it.flags |= flagDelayed
	}
}

// signature names the failures of which a message died last.
func (st *stored) signature() string {
	if f := st.history.Latest(); f != nil {
		return strings.ReplaceAll(f.Signature, "\x00", "") // which ends it in the set of causes
	}
	return ""
}

// record adds a failure to the failure history.
func (it *item) record(f *redrive.Failure, counted bool) {
	if counted && f != nil {
		it.failures++
	}
	it.history.Record(f, counted)
}
