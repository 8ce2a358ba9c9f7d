package session

import "fmt"

// Code is the code of a WebSocket close.
type Code int

// The codes with which the gateway closes, beside those that the WebSocket protocol
// gives by itself.
const (
	CodeBye         Code = 1000 // the session is over
	CodeBinary      Code = 1003
	CodeUTF8        Code = 1007
	CodeTooBig      Code = 1009
	CodeInternal    Code = 1011
	CodeRestart     Code = 1012
	CodeOverloaded  Code = 1013
	CodeFrame       Code = 4400 // a frame that cannot be, or comes at the wrong time
	CodeToken       Code = 4401
	CodeForbidden   Code = 4403 // the session is another token's
	CodeIdle        Code = 4408
	CodeSuperseded  Code = 4409
	CodeTooMany     Code = 4429 // beyond the credit, or too many errors unconfirmed
	maxReasonLength      = 123  // bytes that a close frame has room for
)

// Close is why a connection ends. It is an error.
type Close struct {
	Code   Code
	Reason string // a word, a colon and a sentence
	Err    error  // for the log, if it is more than the client's doing
}

// Error implements error.
func (c *Close) Error() string { return fmt.Sprintf("close %d: %s", c.Code, c.Reason) }

// Unwrap returns Err.
func (c *Close) Unwrap() error { return c.Err }

// NewClose returns a close with a reason of a word and a sentence, cut to what a close
// frame holds.
func NewClose(code Code, word, format string, args ...any) *Close {
	reason := word
	if format != "" {
		reason += ": " + fmt.Sprintf(format, args...)
	}
	for len(reason) > maxReasonLength {
		r := []rune(reason)
		reason = string(r[:len(r)-1])
	}
	return &Close{Code: code, Reason: reason}
}
