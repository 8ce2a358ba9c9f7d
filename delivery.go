package redrive

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/redrive/redrive/internal/text"
)

// Lane is the share of a queue's slots that a message competes for.
type Lane uint8

// The lanes, in the order in which a store delivers them.
const (
	LaneFresh   Lane = iota // first attempts
	LaneRetry               // repeated attempts
	LaneRedrive             // messages redriven from the dead letters
	lanes
)

// String returns "fresh", "retry" or "redrive".
func (l Lane) String() string { return text.Enum(laneNames[:], l) }

// MarshalText implements encoding.TextMarshaler.
func (l Lane) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (l *Lane) UnmarshalText(b []byte) (err error) {
	*l, err = text.ParseEnum[Lane](ErrInvalid, laneNames[:], string(b), "lane")
	return err
}

var laneNames = [lanes]string{"fresh", "retry", "redrive"}

// Delivery is a message claimed under a lease. The handler may read it until it
// returns; Body and Headers must not be changed.
type Delivery struct {
	Message
	// Lane is the lane that the message was claimed from.
	Lane Lane
	// Attempt counts claims of this generation, from 1; a released claim is given
	// back, a crash counts.
	Attempt int
	// Failures counts the recorded failures of this generation before this attempt;
	// MaxAttempts is compared with it.
	Failures int
	// Crashes counts deaths of the process while this message was isolated in it.
	Crashes int
	// Suspect says that a claim of this message ended without a settlement, so it
	// was claimed in isolation. A source without [driver.Caps.RecordsClaims] says with it that it
	// may have delivered the message before, perhaps to another process; the engine
	// then looks for its claim record.
	Suspect bool
	// Dead is the reason the message is dead for, when a dead letter was claimed
	// (ClaimRequest.Dead).
	Dead Reason
	// Unfit says that the source found a message that cannot be delivered, such as
	// bytes that it cannot decode. No handler sees it: it becomes a dead letter with
	// this reason. Zero: it is fit.
	Unfit Reason
	// History is what a source that is no Store has recorded of the failures so far,
	// so that they are kept when the message is parked. nil: nothing, or a Store knows.
	History *History
	// LeasedAt is when the message was claimed, by the store's clock.
	LeasedAt time.Time
	// Lease is how long the claim holds, as granted: it may differ from what was asked
	// for. Zero: as asked; [driver.Never]: as long as the connection.
	Lease time.Duration
	// Identity is how the message is named, if it differs from the source's.
	Identity Identity
	// Receipt is what settles or extends this claim.
	Receipt Receipt
}

// Identity is how a source names its messages across redeliveries.
type Identity uint8

// The identities.
const (
	IdentityMessage  Identity = iota + 1 // the message carries its publisher's id
	IdentityPosition                     // a position in a log names it
	IdentityNone                         // nothing does; a parked copy may be doubled
)

// Receipt proves a claim. It may be carried to another process as text. Token and
// Position together differ from those of every other claim of the message, also if a
// claim was undone by a loss of power.
type Receipt struct {
	Ref
	// Token is the fencing token: strictly increasing over the claims of a message
	// where [driver.Caps.Fenced].
	Token uint64
	// Position is the backend's own place of the claim (an offset, an entry id, a
	// delivery tag with its channel's epoch); opaque bytes, may be empty.
	Position string
}

// MarshalText encodes the receipt for a pull worker.
func (r Receipt) MarshalText() ([]byte, error) {
	var b []byte
	for _, s := range []string{r.Queue, r.ID, r.Position} {
		b = binary.AppendUvarint(b, uint64(len(s)))
		b = append(b, s...)
	}
	b = binary.AppendUvarint(b, r.Token)
	return base64.RawURLEncoding.AppendEncode(nil, b), nil
}

// UnmarshalText decodes what MarshalText made.
func (r *Receipt) UnmarshalText(text []byte) error {
	b, err := base64.RawURLEncoding.AppendDecode(nil, text)
	if err != nil {
		return fmt.Errorf("%w receipt: %w", ErrInvalid, err)
	}
	for _, s := range []*string{&r.Queue, &r.ID, &r.Position} {
		n, w := binary.Uvarint(b)
		if w <= 0 || n > uint64(len(b[w:])) {
			return fmt.Errorf("%w receipt: it is cut short", ErrInvalid)
		}
		*s, b = string(b[w:][:n]), b[w:][n:]
	}
	token, w := binary.Uvarint(b)
	if w <= 0 || w != len(b) {
		return fmt.Errorf("%w receipt: it does not end where it should", ErrInvalid)
	}
	r.Token = token
	return nil
}
