package driver

import (
	"bytes"
	"slices"
	"strings"

	"github.com/redrive/redrive"
)

// Matches reports whether a query selects an entry with its body, headers and history:
// what a store or an archive without an index for a field asks of each. The times of a
// query are those of death for the dead, of publication for the others.
func Matches(q *redrive.Query, e *redrive.Entry) bool {
	at := e.PublishedAt
	if e.State == redrive.StateDead {
		at = e.DiedAt
	}
	signature, message := "", ""
	if f := e.History.Latest(); f != nil {
		signature, message = f.Signature, f.Message
	}
	switch {
	case q.Queue != "" && q.Queue != e.Queue,
		q.State != 0 && q.State != e.State,
		q.Reason != 0 && (q.Reason != e.Reason || e.State != redrive.StateDead),
		q.Signature != "" && q.Signature != signature,
		q.Kind != "" && q.Kind != e.Kind,
		q.Key != "" && q.Key != e.Key,
		!q.Since.IsZero() && at.Before(q.Since),
		!q.Until.IsZero() && at.After(q.Until),
		q.Plan != "" && q.Plan != e.Plan,
		q.NotPlan != "" && q.NotPlan == e.Plan,
		!HasHeader(e.Headers, q.Header):
		return false
	}
	return q.Text == "" || bytes.Contains(e.Body, []byte(q.Text)) || strings.Contains(message, q.Text)
}

// HasHeader looks for NAME or NAME=VALUE among headers; "" is always there.
func HasHeader(h redrive.Headers, want string) bool {
	if want == "" {
		return true
	}
	name, value, exact := strings.Cut(want, "=")
	return slices.ContainsFunc(h, func(v redrive.Header) bool { return v.Name == name && (!exact || string(v.Value) == value) })
}
