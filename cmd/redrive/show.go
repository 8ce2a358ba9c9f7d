package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/wire"
)

// showCmd tells everything about one message.
type showCmd struct {
	remote `embed:""`
	ID     string `arg:"" name:"[queue/]id" help:"The message."`
	Body   bool   `help:"Write the body only, byte for byte (made safe on a terminal)."`
}

func (*showCmd) Help() string {
	return examples("redrive show hooks/order-42", "where it is and what happened to it", "redrive show hooks/order-42 --body > order.json", "its body")
}

// Run prints the message.
func (c *showCmd) Run(ctx context.Context, t *terminal, client *client) error {
	return c.show(ctx, t, client, c.ID, "", c.Body, messagePath)
}

// show prints what is found under a path of a message.
func (r *remote) show(ctx context.Context, t *terminal, client *client, id, queue string, body bool, path func(redrive.Ref) string) error {
	ref, err := parseRef(id, queue)
	if err != nil {
		return err
	}
	if ref, err = client.resolve(ctx, ref); err != nil {
		return err
	}
	var m wire.Message
	if err := client.do(ctx, http.MethodGet, path(ref), nil, nil, &m); err != nil {
		return err
	}
	switch {
	case body && m.Hidden:
		return fmt.Errorf("the token may not see bodies")
	case body && m.Masked:
		return fmt.Errorf("parts of the body are masked; redrive dead export writes it whole, for who may see it")
	case body && t.outTTY:
		t.printf("%s\n", cleanText(string(m.Bytes())))
		return nil
	case body:
		_, err := t.out.Write(m.Bytes())
		return err
	case t.json:
		return t.writeJSON(m)
	}
	printMessage(t, &m)
	return nil
}

// whole returns a message with what the configuration masks, for what would otherwise
// write the mask back.
func (c *client) whole(ctx context.Context, path string) (wire.Message, error) {
	var m wire.Message
	err := c.do(ctx, http.MethodGet, path, nil, nil, &m)
	if err == nil && m.Masked {
		m = wire.Message{}
		err = c.do(ctx, http.MethodGet, path, url.Values{"unmasked": {"true"}}, nil, &m)
	}
	return m, err
}

// fields prints names and values, aligned; empty values are left out.
func fields(t *terminal, indent string, pairs ...string) {
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] == "" {
			continue
		}
		t.printf("%s%s %s\n", indent, t.paint(faint, fmt.Sprintf("%-13s", pairs[i])), pairs[i+1])
	}
}

// moment writes a time with how long ago it was.
func moment(at *time.Time) string {
	if at == nil || at.IsZero() {
		return ""
	}
	return at.Local().Format("2006-01-02 15:04:05.000 -0700") + " (" + ago(*at, time.Now()) + ")"
}

func count(n int) string {
	if n == 0 {
		return ""
	}
	return grouped(int64(n))
}

func printMessage(t *terminal, m *wire.Message) {
	state, colour := m.State, good
	if m.Reason != nil {
		state += " (" + m.Reason.String() + ")"
	}
	switch m.State {
	case "dead":
		colour = bad
	case "waiting", "leased", "blocked":
		colour = warn
	}
	t.printf("%s  %s\n", t.paint(strong, clean(m.Queue+"/"+m.ID)), t.paint(colour, clean(state)))
	last := latest(m.History)
	printHappened(t, last)
	fields(t, "  ", "kind", clean(m.Kind), "key", clean(m.Key), "lane", clean(m.Lane), "attempts", count(m.Attempts), "crashes", count(m.Crashes),
		"published", moment(m.PublishedAt), "due", moment(m.DueAt), "leased until", moment(m.LeasedUntil), "by", clean(m.Instance),
		"died", moment(m.DiedAt), "ended", moment(m.EndedAt), "expires", moment(m.ExpiresAt), "reply to", clean(m.ReplyTo),
		"generation", count(m.Generation), "redrives", count(m.Redrives), "plan", clean(m.Plan), "origin", clean(m.Origin), "edited from", clean(m.EditedFrom))
	for _, h := range m.Headers {
		fields(t, "  ", "header", clean(h.Name+": "+string(h.Value)))
	}
	printBody(t, m)
	if last != nil {
		h := m.History
		t.printf("\n%s\n", t.paint(strong, fmt.Sprintf("%s failed %s", grouped(int64(h.Count)), plural(h.Count, "attempt", "attempts"))))
		printFailure(t, "last", last, nil)
		if h.First != last {
			printFailure(t, "first", h.First, last)
		}
	}
	if o := m.Original; o != nil {
		t.printf("\n%s\n", t.paint(strong, "before it was edited"))
		fields(t, "  ", "kind", clean(o.Kind), "key", clean(o.Key))
		printBody(t, o)
	}
}

// latest is the newest failure that is kept, or nil.
func latest(h *wire.History) *wire.Failure {
	if h == nil || h.Last == nil && h.First == nil {
		return nil
	}
	return cmp.Or(h.Last, h.First)
}

// printHappened says what happened at last, and what the target answered.
func printHappened(t *terminal, f *wire.Failure) {
	if f == nil {
		return
	}
	t.printf("  %s\n", t.paint(bad, shorten(clean(f.Message), maxShownError)))
	if answer := f.Details[driver.DetailAnswer]; answer != "" {
		t.printf("  %s\n%s\n", t.paint(faint, "the target answered"), indented(cleanText(pretty(answer)), "    "))
	}
}

// maxShownError bounds how much of an error is printed, in columns.
const maxShownError = 1000

// pretty indents JSON, with its numbers and the order of its members as they are. Other text stays.
func pretty(s string) string {
	var b bytes.Buffer
	if json.Indent(&b, []byte(s), "", "  ") != nil {
		return s
	}
	return b.String()
}

// maxShownBody bounds how much of a body is printed, in bytes.
const maxShownBody = 4 << 10

func printBody(t *terminal, m *wire.Message) {
	switch {
	case m.Hidden:
		fields(t, "  ", "body", "(the token may not see it)")
	case m.Body != nil:
		b := pretty(*m.Body)
		more := ""
		if len(b) > maxShownBody {
			more = fmt.Sprintf("… (%s in all; --body writes it whole)", bytesText(int64(len(*m.Body))))
			b = strings.ToValidUTF8(b[:maxShownBody], "")
		}
		t.printf("  %s\n%s%s\n", t.paint(faint, "body"), indented(cleanText(b), "    "), more)
	case m.Size != nil && *m.Size > 0:
		fields(t, "  ", "body", fmt.Sprintf("%s that are not text; --body writes them", bytesText(int64(*m.Size))))
	}
}

// printFailure prints what was not said of a failure yet: of its error and answer nothing, if it is the
// one that printHappened has told of; nothing that is the same as in another, which was printed.
func printFailure(t *terminal, which string, f, other *wire.Failure) {
	when := fmt.Sprintf("attempt %d, %s, took %s", f.Attempt, moment(&f.At), f.Duration)
	fields(t, "  ", which, when)
	pairs, stack := failureFields(f), f.Stack
	if other != nil {
		was := failureFields(other)
		for name, value := range pairs {
			if was[name] == value {
				delete(pairs, name)
			}
		}
		if stack == other.Stack {
			stack = ""
		}
	} else {
		delete(pairs, "error")
		delete(pairs, driver.DetailAnswer)
	}
	for _, name := range failureOrder {
		fields(t, "    ", name, clean(pairs[name]))
		delete(pairs, name)
	}
	for _, name := range slices.Sorted(maps.Keys(pairs)) {
		fields(t, "    ", clean(name), clean(pairs[name]))
	}
	if stack != "" {
		t.printf("    %s\n%s\n", t.paint(faint, "stack"), indented(cleanText(stack), "      "))
	}
}

// failureOrder is the order of what is known of every failure; details follow.
var failureOrder = []string{"error", "reason", "type", "target", "policy", "ran on", "program", "trace", "signature"}

func failureFields(f *wire.Failure) map[string]string {
	pairs := make(map[string]string)
	for name, value := range f.Details {
		if slices.Contains(failureOrder, name) { // a worker may name it as it likes
			name = "detail " + name
		}
		pairs[name] = value
	}
	timeout := ""
	if f.Config.Timeout != 0 {
		timeout = ", timeout " + f.Config.Timeout.String()
	}
	if f.Reason != nil {
		pairs["reason"] = f.Reason.String()
	}
	maps.Copy(pairs, map[string]string{
		"error": shorten(f.Message, maxShownError), "type": strings.Join(f.Types, " <- "), "target": f.Config.Target, "trace": f.TraceID, "signature": f.Signature,
		"policy": fmt.Sprintf("%s, max %d attempts%s", f.Config.Policy, f.Config.MaxAttempts, timeout),
		"ran on": fmt.Sprintf("%s (%s), pid %d", f.Host, f.IP, f.PID), "program": fmt.Sprintf("%s %s, %s", f.Service, f.Version, f.Environment),
	})
	return pairs
}

func indented(s, by string) string {
	return by + strings.ReplaceAll(strings.TrimRight(s, "\n"), "\n", "\n"+by)
}
