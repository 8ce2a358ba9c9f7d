package session

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/internal/wsproto"
)

// Space is the space of records in which sessions are kept, by their names.
const Space = "session"

// Record is a session as the store keeps it. It is written in the step that moves the
// session's messages.
type Record struct {
	Epoch    uint64    `json:"epoch"`             // counts connections
	Attempt  uint64    `json:"attempt,omitempty"` // of the client to connect
	Step     uint64    `json:"step"`              // counts writes by owners
	Seq      uint64    `json:"seq"`               // every number up to it is decided
	Result   uint64    `json:"result"`            // every result up to it is acknowledged
	Pushed   []string  `json:"pushed,omitempty"`  // ids of the results after it that have numbers
	Refused  []Refusal `json:"refused,omitempty"`
	Doubts   []Doubt   `json:"doubts,omitempty"`   // of the newest step
	Wanted   uint64    `json:"wanted"`             // messages that were accepted and will have a result
	Settled  uint64    `json:"settled"`            // results that were acknowledged or are lost
	Lost     uint64    `json:"lost,omitempty"`     // results that were dropped
	Reported uint64    `json:"reported,omitempty"` // of these, what the client received
	Hash     []byte    `json:"hash"`               // SHA-256 of the resume token
	Owner    string    `json:"owner,omitempty"`
	Created  time.Time `json:"created"`
	Attached time.Time `json:"attached"`           // when the newest connection began
	Instance string    `json:"instance,omitempty"` // where that was

	Connection string `json:"connection"` // names that connection
}

// Refusal is a number whose message was not accepted.
type Refusal struct {
	Seq   uint64          `json:"seq"`
	Error json.RawMessage `json:"error"` // a problem
}

// Doubt is a number whose message has an id that the client chose: the store may have
// refused it in the step that moved the session over it. Whether it did is known by what
// it remembers of the id.
type Doubt struct {
	Seq   uint64 `json:"seq"`
	Queue string `json:"queue"`
	ID    string `json:"id"`
	Hash  uint64 `json:"hash"`           // see [driver.Masks.BodyHash]
	Mute  bool   `json:"mute,omitempty"` // no result is wanted
}

// DecodeRecord reads a record's value.
func DecodeRecord(value []byte) (*Record, error) {
	r := new(Record)
	if err := json.Unmarshal(value, r); err != nil {
		return nil, fmt.Errorf("session record: %w", err)
	}
	return r, nil
}

// Encode returns the record's value.
func (r *Record) Encode() []byte {
	b, err := json.Marshal(r)
	if err != nil { // no field can fail to encode
		panic(err)
	}
	return b
}

// refs are the names of the messages in doubt.
func (r *Record) refs() []redrive.Ref {
	refs := make([]redrive.Ref, len(r.Doubts))
	for i := range r.Doubts {
		refs[i] = redrive.Ref{Queue: r.Doubts[i].Queue, ID: r.Doubts[i].ID}
	}
	return refs
}

// Outstanding is how many messages have no acknowledged result yet.
func (r *Record) Outstanding() int {
	if r.Settled >= r.Wanted {
		return 0
	}
	return int(r.Wanted - r.Settled) //nolint:gosec // bounded by the machine
}

// clone copies what a step may change.
func (r *Record) clone() Record {
	c := *r
	c.Pushed = append([]string(nil), r.Pushed...)
	c.Refused = append([]Refusal(nil), r.Refused...)
	c.Doubts = nil // they are resolved before there is another step
	return c
}

// newToken returns a resume token and its hash.
func newToken() (token string, hash []byte) {
	token = rand.Text() + rand.Text()
	return token, tokenHash(token)
}

func tokenHash(token string) []byte {
	sum := sha256.Sum256([]byte(token))
	return sum[:]
}

// opens reports whether a resume token is the record's.
func (r *Record) opens(token string) bool {
	return subtle.ConstantTimeCompare(tokenHash(token), r.Hash) == 1
}

// DecodeBearer reads the token of a subprotocol that carries one.
func DecodeBearer(subprotocol string) (token string, ok bool) {
	if len(subprotocol) <= len(wsproto.BearerPrefix) || subprotocol[:len(wsproto.BearerPrefix)] != wsproto.BearerPrefix {
		return "", false
	}
	b, err := base64.RawURLEncoding.DecodeString(subprotocol[len(wsproto.BearerPrefix):])
	return string(b), err == nil && len(b) > 0
}
