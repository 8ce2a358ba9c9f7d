package driver

import (
	"github.com/redrive/redrive"
	"github.com/redrive/redrive/internal/text"
)

// CheckQueue reports why a name cannot be a queue's, or nil.
func CheckQueue(name string) error { return text.CheckQueue(redrive.ErrInvalid, name) }

// CheckID reports why a string cannot be a message's id, or nil.
func CheckID(id string) error { return text.CheckID(redrive.ErrInvalid, id) }
