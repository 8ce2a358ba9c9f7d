package redisstream

import (
	"encoding/json"
	"strconv"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
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
	it       *item
	active   bool // the holder may still have its lease: a settlement
	checks   bool // the item was read, so it must not have changed since
	what     string
	to       *queue // nil: stays
	idTo     string
	memory   memory
	ledger   []any // name, count
	ledgerTo []any // of the queue it moves to
	fresh    bool  // it begins a new place among those of its key
	emits    []*newOp
	fields   []string
}

// die makes the change a dead letter.
func (o *changeOp) die(reason redrive.Reason) {
	it := o.it
	o.what = "die"
	it.reason, it.died = reason, 0
	it.dueIn(0)
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
		if e, err = seal(&it.msg, &it.stored); err != nil {
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
	p.list(20)
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
	packLedger(p, o.ledger)
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
	packLedger(p, o.ledgerTo)
	p.num(int64(bit(o.fresh)))
	p.num(int64(it.msg.Size()))
	p.str(it.signature())
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

func packLedger(p *packed, ledger []any) {
	p.list(len(ledger))
	for _, v := range ledger {
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
	}
	if first := it.history.First; first != nil {
		add("first_failed_at", first.At.UTC().Format(time.RFC3339Nano))
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
	it.dueIn(0)
	if it.expires > 0 && it.expires <= it.now {
		it.msg.ExpiresAt, it.expires = time.Time{}, 0 // or it would expire again at once
	}
}

// edit replaces parts of a message and keeps the original. The checksum becomes that of the
// new parts; of a message that did not fit, only with a new body.
func (it *item) edit(e *redrive.Edit) {
	if e == nil {
		return
	}
	m := it.msg
	e.Apply(&m)
	if it.original == nil {
		original := it.msg
		it.original, it.originalSum = &original, it.sum
	}
	if e.Body != nil || it.sum.fits(&it.msg) {
		it.sum = checksum{}
	}
	if m.Key != it.msg.Key {
		it.flags &^= flagOrdered
		it.rekeyed = true
	}
	it.msg = m
	if driver.Restored(&m, it.original) && it.originalSum.fits(it.original) {
		it.original, it.sum, it.originalSum = nil, it.originalSum, checksum{}
	}
}
