package redrive

import (
	"github.com/redrive/redrive/internal/text"
)

// Reason says why a message is dead. The set is closed.
type Reason uint8

// The reasons.
const (
	ReasonExhausted   Reason = iota + 1 // it failed as often as its policy allows
	ReasonPermanent                     // its failure was of a kind that retrying cannot mend
	ReasonCrashed                       // the process died too often while it was isolated
	ReasonExpired                       // it was not delivered in time
	ReasonUndecodable                   // its bytes are not what its kind says
	ReasonOversize                      // it is larger than the way it must go
	ReasonUnroutable                    // there is no way for it
	ReasonRejected                      // a broker or a policy refused it
	ReasonLoop                          // it was redriven too often
	ReasonUncertain                     // its effect is unknown and it is not safe to repeat
	ReasonDisabled                      // its target was turned off for good
	ReasonManual                        // a person dead-lettered it
	ReasonCorrupt                       // its bytes do not match the checksum that they were stored with
)

var reasonNames = []string{"", "exhausted", "permanent", "crashed", "expired", "undecodable", "oversize",
	"unroutable", "rejected", "loop", "uncertain", "disabled", "manual", "corrupt"}

// Reasons returns all reasons.
func Reasons() []Reason {
	all := make([]Reason, 0, len(reasonNames)-1)
	for r := ReasonExhausted; r <= ReasonCorrupt; r++ {
		all = append(all, r)
	}
	return all
}

// String returns the reason in lower case; the zero Reason is empty.
func (r Reason) String() string { return text.Enum(reasonNames, r) }

// MarshalText implements encoding.TextMarshaler.
func (r Reason) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (r *Reason) UnmarshalText(b []byte) (err error) {
	*r, err = text.ParseEnum[Reason](ErrInvalid, reasonNames, string(b), "reason")
	return err
}
