package sqlite

import (
	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// checksum is what stands beside a stored message: its [driver.Checksum].
type checksum int64

const (
	unchecked  checksum = -1 // there is none
	unreadable checksum = -2 // its headers cannot be read: it matches nothing
)

func checksumOf(m *redrive.Message) checksum { return checksum(driver.Checksum(m)) }

// checksum binds a checksum, null for none.
func (s *stmt) checksum(c checksum) *stmt {
	if c == unchecked {
		return s.null()
	}
	return s.int(int64(c))
}

func (s *stmt) colChecksum(i int32) checksum {
	if s.colNull(i) {
		return unchecked
	}
	return checksum(s.colInt(i))
}

// stored is a message with its checksum.
type stored struct {
	redrive.Message
	checksum checksum
}

// summed is a message as it was given, whose checksum is made here.
func summed(m *redrive.Message) *stored { return &stored{*m, checksumOf(m)} }

// put is a message of an entry that is put, with the checksum that it came with.
func put(m *redrive.Message, came *uint32) *stored {
	return &stored{*m, checksum(driver.GivenChecksum(m, came))}
}

// shown is the checksum as an entry has it.
func (m *stored) shown() *uint32 {
	switch m.checksum {
	case unchecked:
		return nil
	case unreadable:
		no := ^driver.Checksum(&m.Message)
		return &no
	}
	sum := uint32(m.checksum) //nolint:gosec // it was made of one
	return &sum
}

// sound reports whether a message is as it was given.
func (m *stored) sound() bool { return m.checksum == unchecked || m.checksum == checksumOf(&m.Message) }

// unfit says why a message cannot be delivered; 0: it can.
func (m *stored) unfit() redrive.Reason {
	if m.sound() {
		return 0
	}
	return redrive.ReasonCorrupt
}

// edit replaces parts of a message. Another key does not mend a body: unless the message was
// sound or gets a new body, its checksum stays.
func (m *stored) edit(e *redrive.Edit) {
	if e == nil {
		return
	}
	sound := e.Body != nil || m.sound()
	e.Apply(&m.Message)
	if sound {
		m.checksum = checksumOf(&m.Message)
	}
}

// confirm takes the bytes of a corrupt dead letter for what was given, if a redrive says so.
func (m *stored) confirm(c *driver.Change, reason redrive.Reason) {
	if c.ConfirmCorrupt && reason == redrive.ReasonCorrupt {
		m.checksum = checksumOf(&m.Message)
	}
}
