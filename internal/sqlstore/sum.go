package sqlstore

import (
	"encoding/json"
	"strings"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// Judge makes a delivery unfit whose message does not match its checksum; nil: unchecked.
func Judge(d *redrive.Delivery, sum *uint32) {
	if !driver.Matches(&d.Message, sum) {
		d.Unfit = redrive.ReasonCorrupt
	}
}

// seal gives a message a new checksum.
func (m *Message) seal() {
	sum := driver.Checksum(&m.Message)
	m.Sum = &sum
}

// edit replaces parts of a message. Where the disk changed it before, only a new body
// makes it match again.
func (m *Message) edit(e *redrive.Edit) {
	if e == nil {
		return
	}
	sound := driver.Matches(&m.Message, m.Sum)
	e.Apply(&m.Message)
	if sound || e.Body != nil {
		m.seal()
	}
	if o, ok := m.original(); ok && driver.Restored(&m.Message, o.message()) && driver.Matches(o.message(), o.Sum) {
		m.Original, m.Sum = nil, o.Sum
	}
}

// belong notes the plan that edits a message.
func (m *Message) belong(plan string) {
	if plan != "" {
		m.Plan = plan
	}
}

// confirm takes a corrupt dead letter as it is for what was meant.
func (m *Message) confirm(c *driver.Change) {
	if c.ConfirmCorrupt && m.Reason == redrive.ReasonCorrupt {
		m.seal()
	}
}

// keepGiven keeps the original of an entry that is put, as JSON can hold it.
func (m *Message) keepGiven(was *redrive.Message, came *uint32) {
	o, sum := *was, came
	o.Kind, o.Key = strings.ToValidUTF8(o.Kind, "\uFFFD"), strings.ToValidUTF8(o.Key, "\uFFFD")
	if driver.Matches(was, came) {
		own := driver.Checksum(&o)
		sum = &own
	}
	m.KeepOriginal(&o, sum)
}

// originalMatches reports whether the original is as it was kept.
func (m *Message) originalMatches() bool {
	if m.Original == nil {
		return true
	}
	o, ok := m.original()
	return ok && driver.Matches(o.message(), o.Sum)
}

// original reads the original, if there is one that can be read.
func (m *Message) original() (o original, ok bool) {
	return o, m.Original != nil && json.Unmarshal(m.Original, &o) == nil
}

func (o *original) message() *redrive.Message {
	return &redrive.Message{Kind: o.Kind, Key: o.Key, Headers: o.headers(), Body: o.Body}
}
