package brokertest

import (
	"slices"
	"strings"
	"testing"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/dialect"
)

// OtherReader returns what a program reads of a dead letter's headers, as they stand at the
// broker, that knows only a dialect. It checks that ours is understood as well, and leaves
// of the message's headers only own, by their names.
func OtherReader(t testing.TB, d dialect.Dialect, h redrive.Headers, own ...string) dialect.Letter {
	t.Helper()
	ours, ok := dialect.Read(h)
	if !ok || ours.Dialect != dialect.Redrive {
		t.Errorf("in our own dialect: %+v", ours)
	}
	for _, v := range ours.Headers {
		if !slices.Contains(own, v.Name) && !strings.HasPrefix(v.Name, "redrive-") {
			t.Errorf("header %s stays with the message", v.Name)
		}
	}
	var theirs redrive.Headers
	for _, v := range h {
		if !strings.HasPrefix(v.Name, "redrive-") {
			theirs = append(theirs, v)
		}
	}
	l, ok := dialect.Read(theirs)
	if !ok || l.Dialect != d {
		t.Errorf("in the dialect %s: %+v", d, l)
	}
	return l
}
