package driver

import (
	"strconv"
	"strings"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/internal/text"
)

// SessionReply is the prefix of a ReplyTo that names a session of the gateway; its
// results wait in [ResultQueue] under the session's name as key. A slash and the number
// under which the session published the message may follow the name.
const SessionReply = "session:"

// ResultID returns the id of the result that this generation of a message emits.
func ResultID(m *redrive.Message) string {
	return DeriveID("result", m.Queue, m.ID, strconv.Itoa(m.Generation))
}

// ResultMessage returns the result that a message with ReplyTo emits when it ends:
// under an id derived from the message and its generation, with the outcome, the
// reason and the excerpt of the failure as headers and the given body. It reports
// false for a message without ReplyTo. The engine adds it to the settlement;
// [driver.Store.Update] publishes it in the same step as the change.
func ResultMessage(m *redrive.Message, o redrive.Outcome, reason redrive.Reason, failure *redrive.Failure, body []byte) (redrive.Message, bool) {
	if m.ReplyTo == "" || !o.Terminal() {
		return redrive.Message{}, false
	}
	r := redrive.Message{
		ID:    ResultID(m),
		Queue: m.ReplyTo,
		Kind:  "redrive.result",
		Body:  body,
	}
	if name, ok := strings.CutPrefix(m.ReplyTo, SessionReply); ok {
		name, number, numbered := strings.Cut(name, "/")
		r.Queue, r.Key = ResultQueue, name
		if numbered {
			r.Headers.Add(redrive.HeaderReplyNumber, number)
		}
	}
	r.Headers.Add(redrive.HeaderReplyFor, m.Ref().String())
	r.Headers.Add(redrive.HeaderOutcome, o.String())
	if reason != 0 {
		r.Headers.Add(redrive.HeaderReason, reason.String())
	}
	if failure != nil {
		r.Headers.Add(redrive.HeaderError, text.Clean(failure.Message, 512))
	}
	return r, true
}

// ResultQueue is the system queue in which results wait for the sessions of the
// gateway. Names that begin with an underscore are reserved for such queues.
const ResultQueue = "_results"
