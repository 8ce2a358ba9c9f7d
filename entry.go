package redrive

import (
	"time"

	"github.com/redrive/redrive/internal/text"
)

// State is where a message stands in its store.
type State uint8

// The states.
const (
	StateWaiting State = iota + 1 // due now or later
	StateLeased                   // claimed; counted as waiting in the ledger
	StateBlocked                  // behind the head of its key; counted as waiting in the ledger
	StateDead                     // among the dead letters
)

var stateNames = []string{"", "waiting", "leased", "blocked", "dead"}

// String returns the state in lower case.
func (s State) String() string { return text.Enum(stateNames, s) }

// MarshalText implements encoding.TextMarshaler.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *State) UnmarshalText(b []byte) (err error) {
	*s, err = text.ParseEnum[State](ErrInvalid, stateNames, string(b), "state")
	return err
}

// Entry is a message with its state: what a look into a store shows, and what
// parking, import and attach put.
type Entry struct {
	Message
	State    State
	Lane     Lane
	Attempts int       // claims of this generation, without those given back
	Crashes  int       // deaths of the process while it was isolated
	Suspect  bool      // a claim of it ended without a settlement
	Due      time.Time // when it may be claimed, by the store's clock (waiting)
	Until    time.Time // when its lease ends (leased)
	Instance string    // who holds it (leased)
	Token    uint64    // the current fencing token (leased)
	Reason   Reason    // why it is dead (dead)
	DiedAt   time.Time // since when (dead)
	History  History   // its failures in this generation and before
	// Original is the message as it was before it was edited in place, else nil.
	Original *Message
	// Checksum and OriginalChecksum are what the store keeps beside the message and its original to
	// tell whether a disk changed them (CRC-32C, see driver.Checksum). nil: it keeps none, or was
	// not asked for bodies. Who puts an entry hands them on; of what has none they are made.
	Checksum, OriginalChecksum *uint32
}
