package alerts

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redrive/redrive/internal/wire"
)

// listMost is how many alerts a message names.
const listMost = 10

// newMessage returns the message about some news.
func newMessage(n *news, publicURL, environment string, now time.Time) *message {
	m := &message{environment: environment, at: now.UTC()}
	h := sha256.New()
	add := func(from []*alert, to *[]wire.Alert) {
		for _, a := range from {
			*to = append(*to, a.linked(publicURL))
			fmt.Fprintln(h, a.Subject, a.State, a.Since.UnixNano())
		}
		sortAlerts(*to)
	}
	add(n.firing, &m.firing)
	add(n.over, &m.over)
	m.id = "alert-" + hex.EncodeToString(h.Sum(nil)[:12])
	return m
}

// listed are the alerts that a message names, and how many it does not.
func (m *message) listed(all []wire.Alert) (some []wire.Alert, more int) {
	some = append([]wire.Alert{}, all[:min(len(all), listMost)]...)
	return some, len(all) - len(some)
}

// title says in a line what the message is about.
func (m *message) title() string {
	about := func(all []wire.Alert) string {
		s := titleOf(&all[0])
		if len(all) > 1 {
			s += fmt.Sprintf(" and %d more", len(all)-1)
		}
		return s
	}
	var parts []string
	if len(m.firing) > 0 {
		parts = append(parts, "firing: "+about(m.firing))
	}
	if len(m.over) > 0 {
		parts = append(parts, "over: "+about(m.over))
	}
	return "redrive " + m.environment + ": " + strings.Join(parts, "; ")
}

// titleOf names an alert.
func titleOf(a *wire.Alert) string {
	return strings.ReplaceAll(a.Rules[0], "_", " ") + ", " + a.Subject
}

func plainText(s string) string { return s }

// text tells everything, a paragraph an alert. escape makes a text harmless for who shows it.
func (m *message) text(escape func(string) string) string {
	var b strings.Builder
	firing, more := m.listed(m.firing)
	for i := range firing {
		a := &firing[i]
		fmt.Fprintf(&b, "%s\n", escape(a.Summary))
		if also := a.Rules[1:]; len(also) > 0 {
			fmt.Fprintf(&b, "  also: %s\n", escape(strings.Join(also, ", ")))
		}
		writeTail(&b, a, escape)
	}
	if more > 0 {
		fmt.Fprintf(&b, "and %d more: redrive alerts\n", more)
	}
	over, more := m.listed(m.over)
	for i := range over {
		fmt.Fprintf(&b, "over after %s: %s\n", rounded(over[i].EndedAt.Sub(over[i].Since)), escape(over[i].Summary))
	}
	if more > 0 {
		fmt.Fprintf(&b, "and %d more are over\n", more)
	}
	return strings.TrimRight(b.String(), "\n")
}

func writeTail(b *strings.Builder, a *wire.Alert, escape func(string) string) {
	fmt.Fprintf(b, "  since %s\n", clock(a.Since))
	if a.Next != "" {
		fmt.Fprintf(b, "  next: %s\n", escape(a.Next))
	}
	if a.Link != "" {
		fmt.Fprintf(b, "  %s\n", escape(a.Link))
	}
}

// testMessage is what a person asked for.
func testMessage(environment, instance string, now time.Time) *message {
	a := wire.Alert{Subject: "test", Rules: []string{wire.AlertTest}, State: wire.AlertOver, Since: now.UTC(), EndedAt: new(time.Time),
		Summary: "a test of alerts by a person; nothing is wrong", Next: "redrive alerts"}
	*a.EndedAt = now.UTC()
	return &message{id: "alert-test-" + instance[:min(8, len(instance))] + "-" + fmt.Sprint(now.UnixNano()), environment: environment, at: now.UTC(), over: slices.Clip([]wire.Alert{a})}
}
