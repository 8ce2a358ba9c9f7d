package driver

import (
	"strings"

	"github.com/redrive/redrive"
)

// Masks say what a queue's messages show to whoever may not see all of them, as a
// configuration has it. A nil function hides nothing, and so does a nil Masks. The
// functions are called concurrently, and change nothing that they are given.
type Masks struct {
	// Body returns the body of a message as it shows.
	Body func(m *redrive.Message) []byte
	// Text returns a text about a message of a queue, such as an error, as it shows.
	Text func(queue, text string) string
	// Answer returns what a target answered to a message of a queue, as it shows.
	Answer func(queue, answer string) string
}

// Masked is a store or sink that takes masks: it tells a repeated publish from another
// message by what they leave. SetMasks is called once, before anything else.
type Masked interface{ SetMasks(m Masks) }

// BodyHash is [BodyHash] of what shows of a message. Answers to publishes under a known id
// depend on it, so that nobody can try out there what the masks hide. Two messages that
// differ in nothing else are the same.
func (k *Masks) BodyHash(m *redrive.Message) uint64 {
	if k == nil || k.Body == nil {
		return BodyHash(m)
	}
	shown := redrive.Message{Kind: m.Kind, Key: m.Key, Body: k.Body(m)}
	return BodyHash(&shown)
}

// ResultMessage is [ResultMessage] with what shows of the failure, as the result goes to a
// queue whose readers may not see the message.
func (k *Masks) ResultMessage(m *redrive.Message, o redrive.Outcome, reason redrive.Reason, failure *redrive.Failure, body []byte) (redrive.Message, bool) {
	if k.Text != nil && failure != nil && m.ReplyTo != "" {
		failure = &redrive.Failure{Message: k.Text(m.Queue, failure.Message)}
	}
	return ResultMessage(m, o, reason, failure, body)
}

// HasText reports whether a failure, which may be nil, has the query's Text, as its View shows it.
func (k *Masks) HasText(q *redrive.Query, queue string, f *redrive.Failure) bool {
	return f != nil && k.Contains(q, queue, f.Message, f.Details[DetailAnswer])
}

// Contains is [Masks.HasText] of an error's text and an answer.
func (k *Masks) Contains(q *redrive.Query, queue, text, answer string) bool {
	if q.View != redrive.ViewAll && k != nil {
		text, answer = k.show(k.Text, queue, text), k.show(k.Answer, queue, answer)
	}
	return strings.Contains(text, q.Text) || q.View != redrive.ViewErrors && strings.Contains(answer, q.Text)
}

// Hides reports whether anything of an error's text or of an answer is hidden.
func (k *Masks) Hides(queue, text, answer string) bool {
	return k != nil && (k.show(k.Text, queue, text) != text || k.show(k.Answer, queue, answer) != answer)
}

func (*Masks) show(mask func(queue, text string) string, queue, text string) string {
	if mask == nil || text == "" {
		return text
	}
	return mask(queue, text)
}
