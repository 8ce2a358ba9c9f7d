package session

import (
	"fmt"

	"github.com/redrive/redrive/internal/wsproto"
)

// maxReasonLength is the bytes that a close frame has room for.
const maxReasonLength = 123

// Close is why a connection ends. It is an error.
type Close struct {
	Code   wsproto.Code
	Reason string // a word, a colon and a sentence
	Err    error  // for the log, if it is more than the client's doing
	Barred bool   // the client may receive nothing more
}

// Error implements error.
func (c *Close) Error() string { return fmt.Sprintf("close %d: %s", c.Code, c.Reason) }

// Unwrap returns Err.
func (c *Close) Unwrap() error { return c.Err }

// NewClose returns a close with a reason of a word and a sentence, cut to what a close
// frame holds.
func NewClose(code wsproto.Code, word, format string, args ...any) *Close {
	reason := word
	if format != "" {
		reason += ": " + fmt.Sprintf(format, args...)
	}
	for len(reason) > maxReasonLength {
		r := []rune(reason)
		reason = string(r[:len(r)-1])
	}
	return &Close{Code: code, Reason: reason, Barred: code.Refuses()}
}
