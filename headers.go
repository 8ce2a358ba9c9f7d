package redrive

import (
	"bytes"
	"slices"
)

// Header is one name with one value. The value is opaque bytes.
type Header struct {
	Name  string
	Value []byte
}

// Headers is an ordered list; names are case-sensitive and may repeat.
type Headers []Header

// Names of the headers that Redrive itself sets or reads.
const (
	HeaderPossibleDuplicate = "redrive-possible-duplicate" // parked from a source without identity
	HeaderReplyFor          = "redrive-reply-for"          // the message that a result belongs to
	HeaderReplyNumber       = "redrive-reply-number"       // the number under which the session published that message
	HeaderOutcome           = "redrive-outcome"            // how that message ended
	HeaderReason            = "redrive-reason"             // why it is dead
	HeaderError             = "redrive-error"              // excerpt of its last error
	HeaderBodyGone          = "redrive-body-gone"          // why the body of this dead letter cannot be had any more
)

// Get returns the last value of a name and whether there is one. The last one
// wins because a re-published message may carry older values before it.
func (h Headers) Get(name string) (string, bool) {
	for _, v := range slices.Backward(h) {
		if v.Name == name {
			return string(v.Value), true
		}
	}
	return "", false
}

// Add appends a value.
func (h *Headers) Add(name, value string) {
	*h = append(*h, Header{Name: name, Value: []byte(value)})
}

// Set replaces all values of a name by one, at the place of the first.
func (h *Headers) Set(name, value string) {
	for i := range *h {
		if (*h)[i].Name == name {
			rest := slices.DeleteFunc((*h)[i+1:], func(v Header) bool { return v.Name == name })
			*h = (*h)[:i+1+len(rest)]
			(*h)[i].Value = []byte(value)
			return
		}
	}
	h.Add(name, value)
}

// Del removes all values of a name.
func (h *Headers) Del(name string) {
	*h = slices.DeleteFunc(*h, func(v Header) bool { return v.Name == name })
}

// Size is the number of bytes of all names and values.
func (h Headers) Size() int {
	n := 0
	for i := range h {
		n += len(h[i].Name) + len(h[i].Value)
	}
	return n
}

// Clone returns a deep copy; nil stays nil.
func (h Headers) Clone() Headers {
	if h == nil {
		return nil
	}
	c := make(Headers, len(h))
	for i := range h {
		c[i] = Header{Name: h[i].Name, Value: bytes.Clone(h[i].Value)}
	}
	return c
}
