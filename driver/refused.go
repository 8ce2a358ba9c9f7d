package driver

import (
	"errors"
	"fmt"
	"strings"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/internal/text"
)

// Refused makes one error of what became of each of n messages of a call: nil if at
// returns no error, the [*redrive.Error] of the only message that was refused, or one
// error that says how many were and names the first of them. [errors.Is] finds the
// causes of all, [errors.As] the [*redrive.Error] of the first.
func Refused(op string, n int, at func(i int) (redrive.Ref, error)) error {
	var each []error
	for i := range n {
		ref, err := at(i)
		if err == nil {
			continue
		}
		if e := (*redrive.Error)(nil); !errors.As(err, &e) || e.Queue != ref.Queue {
			err = &redrive.Error{Op: op, Queue: ref.Queue, ID: ref.ID, Err: err}
		}
		each = append(each, err)
	}
	switch len(each) {
	case 0:
		return nil
	case 1:
		return each[0]
	}
	return &refused{op: op, of: n, each: each}
}

// refused is the errors of several messages of one call.
type refused struct {
	op   string
	of   int
	each []error
}

// namedRefusals is how many messages the text of an error names.
const namedRefusals = 5

// Error names the first messages, each with its cause.
func (r *refused) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %d of %s refused: ", r.op, len(r.each), text.Plural(r.of, "message"))
	for i, err := range r.each[:min(len(r.each), namedRefusals)] {
		if i > 0 {
			b.WriteString("; ")
		}
		b.WriteString(strings.TrimPrefix(err.Error(), r.op+" "))
	}
	if more := len(r.each) - namedRefusals; more > 0 {
		fmt.Fprintf(&b, "; and %d more", more)
	}
	return b.String()
}

// Unwrap returns the error of each message that was refused.
func (r *refused) Unwrap() []error { return r.each }
