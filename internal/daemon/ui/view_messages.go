package ui

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/redrive/redrive/internal/text"
	"github.com/redrive/redrive/internal/wire"
)

// messageRow is a message in a list.
type messageRow struct {
	Queue, ID, Path string
	Kind, Key       string
	What            string
	Attempts        int
	Edited          bool
	When            moment // it died, or is due, or its lease ends
	Instance        string
	Lane            string
}

func messageRowOf(m *wire.Message, now time.Time) messageRow {
	return messageRow{
		Queue: m.Queue, ID: m.ID, Path: messagePath(m.Queue, m.ID), Kind: m.Kind, Key: m.Key, What: text.Clean(cmp.Or(m.Error, m.Type, ""), 160), Attempts: m.Attempts,
		Edited: m.EditedFrom != "", When: momentOf(cmp.Or(m.DiedAt, m.LeasedUntil, m.DueAt), now), Instance: m.Instance, Lane: m.Lane,
	}
}

// deadPage lists dead letters.
type deadPage struct {
	Chips      []filterChip
	Fields     []input
	Rows       []messageRow
	When       string // what the time of a row is
	Next       string
	First      bool // it is the first page
	Incomplete bool
	Filtered   bool
	Actions    []action
	Command    string
}

// input is a field of a form that people fill in.
type input struct{ Name, Label, Value, Hint string }

const deadPageSize = 100

func viewDead(list *wire.List[wire.Message], f *wire.Filter, after string, now time.Time) deadPage {
	p := deadPage{When: "Died", Chips: filterChips(f, "/dead"), First: after == "", Incomplete: !list.Complete, Filtered: f.String() != "", Command: command(append([]string{"redrive", "dead", "list"}, filterFlags(f)...)...)}
	for _, in := range [][3]string{{"queue", "Queue", ""}, {"kind", "Kind", ""}, {"key", "Key", ""}, {"text", "Text", "in the body or the error"}, {"header", "Header", "NAME=VALUE"}, {"since", "Since", "1h or a time"}, {"until", "Until", "1h or a time"}} {
		p.Fields = append(p.Fields, input{in[0], in[1], f.Parameters().Get(in[0]), in[2]})
	}
	for i := range list.Items {
		row := messageRowOf(&list.Items[i], now)
		if p.Filtered {
			row.Path = withQuery(row.Path, map[string][]string{"in": {f.Parameters().Encode()}})
		}
		p.Rows = append(p.Rows, row)
	}
	if list.Next != "" {
		next := f.Parameters()
		next.Set("after", list.Next)
		p.Next = withQuery("/dead", next)
	}
	return p
}

// Bounds of what is shown of a body; a download has the whole.
const (
	bodyShown = 64 << 10
	hexShown  = 8 << 10
	laidOut   = 1 << 20 // up to which JSON is laid out
)

// The forms in which a body is shown.
const (
	asJSON = "json"
	asRaw  = "raw"
	asHex  = "hex"
)

// bodyView is a body as it is shown.
type bodyView struct {
	Text   string
	As     string
	Forms  []option // the others
	Size   string
	Cut    bool
	Hidden bool
	Empty  bool
}

func viewBody(m *wire.Message, as string) bodyView {
	body := m.Bytes()
	v := bodyView{As: as, Hidden: m.Hidden, Empty: len(body) == 0}
	if m.Size != nil {
		v.Size = number(*m.Size) + " bytes"
	}
	isJSON, isText := len(body) <= laidOut && json.Valid(body), utf8.Valid(body)
	if as == "" || as == asJSON && !isJSON || as == asRaw && !isText {
		switch {
		case isJSON:
			v.As = asJSON
		case isText:
			v.As = asRaw
		default:
			v.As = asHex
		}
	}
	switch v.As {
	case asJSON:
		v.Text, v.Cut = cut(string(wire.Pretty(body)), bodyShown)
	case asRaw:
		v.Text, v.Cut = cut(string(body), bodyShown)
	default:
		v.Text, v.Cut = hex.Dump(body[:min(len(body), hexShown)]), len(body) > hexShown
	}
	if isJSON {
		v.Forms = append(v.Forms, option{asJSON, "laid out", v.As == asJSON})
	}
	if isText {
		v.Forms = append(v.Forms, option{asRaw, "raw", v.As == asRaw})
	}
	v.Forms = append(v.Forms, option{asHex, "hex", v.As == asHex})
	return v
}

func cut(s string, limit int) (string, bool) {
	if len(s) <= limit {
		return s, false
	}
	for limit > 0 && !utf8.RuneStart(s[limit]) {
		limit--
	}
	return s[:limit], true
}

// failureView is one failed attempt.
type failureView struct {
	Name     string
	At       moment
	Attempt  int
	Duration string
	What     string
	Types    string
	Where    []pair
	Response string
	Status   string
	Frames   []string // of the application
	Stack    string
	Details  []pair
}

// messagePage is one message.
type messagePage struct {
	Queue, ID, QueuePath string
	State                chip
	Facts                []pair
	What                 string
	CausePath            string
	Failures             []failureView
	Count                int
	Died                 moment
	Ended                moment
	Headers              []pair
	Body                 bodyView
	Masked               bool
	Edited               []string // what differs from what was published
	Actions              []action
	Drop                 *action
	Back                 string
	Path                 string
	Command              string
}

func messageChip(m *wire.Message) chip {
	switch m.State {
	case "dead":
		word := "dead"
		if m.Reason != nil {
			word += ": " + m.Reason.String()
		}
		return chip{word, "✕", toneBad}
	case "leased":
		return chip{"in flight", "▶", toneInfo}
	case "done":
		return chip{"delivered", "✓", toneOK}
	case "drop":
		return chip{"dropped", "–", ""}
	}
	return chip{m.State, "•", ""}
}

func viewMessage(m *wire.Message, as string, now time.Time) messagePage {
	p := messagePage{
		Queue: m.Queue, ID: m.ID, QueuePath: queuePath(m.Queue), Path: messagePath(m.Queue, m.ID), State: messageChip(m), What: m.Error, Masked: m.Masked,
		Died: momentOf(m.DiedAt, now), Ended: momentOf(m.EndedAt, now), Body: viewBody(m, as), Command: command("redrive", "show", m.Queue+"/"+m.ID),
	}
	if m.State == "dead" && m.Signature != "" {
		p.CausePath = causePath(m.Queue, m.Signature)
	}
	add := func(name, value string) {
		if value != "" && value != "0" && value != "–" {
			p.Facts = append(p.Facts, pair{name, value})
		}
	}
	add("kind", m.Kind)
	add("key", m.Key)
	add("attempts", strconv.Itoa(m.Attempts))
	add("crashes", strconv.Itoa(m.Crashes))
	add("published", momentOf(m.PublishedAt, now).Full)
	add("due", momentOf(m.DueAt, now).Full)
	add("lease until", momentOf(m.LeasedUntil, now).Full)
	add("died", p.Died.Full)
	add("ended", p.Ended.Full)
	add("expires", momentOf(m.ExpiresAt, now).Full)
	add("held by", m.Instance)
	add("lane", m.Lane)
	add("reply to", m.ReplyTo)
	add("generation", strconv.Itoa(m.Generation))
	add("redriven", strconv.Itoa(m.Redrives))
	add("plan", m.Plan)
	add("origin", m.Origin)
	for _, h := range m.Headers {
		p.Headers = append(p.Headers, pair{h.Name, string(h.Value)})
	}
	if h := m.History; h != nil {
		p.Count = h.Count
		for i, f := range []*wire.Failure{h.Last, h.First} {
			if f == nil || i == 1 && h.Last == nil {
				continue
			}
			p.Failures = append(p.Failures, failureOf(f, []string{"last failure", "first failure"}[i], now))
		}
		if h.Last == nil && h.First != nil {
			p.Failures = append(p.Failures, failureOf(h.First, "the failure", now))
		}
	}
	if m.Original != nil {
		p.Edited = changed(m.Original, m)
	}
	return p
}

func failureOf(f *wire.Failure, name string, now time.Time) failureView {
	v := failureView{
		Name: name, At: momentAt(f.At, now), Attempt: f.Attempt, Duration: duration(f.Duration.Std()), What: f.Message, Types: strings.Join(f.Types, " → "),
		Stack: f.Stack, Frames: frames(f.Stack),
	}
	add := func(name, value string) {
		if value != "" {
			v.Where = append(v.Where, pair{name, value})
		}
	}
	add("target", f.Config.Target)
	add("host", strings.TrimSpace(f.Host+" "+f.IP))
	add("service", strings.TrimSpace(f.Service+" "+f.Version))
	add("policy", f.Config.Policy)
	add("trace", f.TraceID)
	for _, key := range slices.Sorted(maps.Keys(f.Details)) {
		switch key {
		case "http.status":
			v.Status = f.Details[key]
		case "http.response":
			v.Response = string(wire.Pretty([]byte(f.Details[key])))
		default:
			v.Details = append(v.Details, pair{key, f.Details[key]})
		}
	}
	return v
}

const maxFrames = 6

// frames are the lines of a stack that lead into the application, and not into what runs it.
func frames(stack string) (all []string) {
	for line := range strings.Lines(stack) {
		line = strings.TrimSpace(line)
		runtime := strings.HasPrefix(line, "runtime") || strings.HasPrefix(line, "goroutine ") || strings.HasPrefix(line, "panic(") || strings.HasPrefix(line, "created by ") ||
			strings.Contains(line, "/runtime/") || strings.Contains(line, "redrive/redrive/engine")
		if line == "" || runtime {
			continue
		}
		if all = append(all, line); len(all) == maxFrames {
			break
		}
	}
	return all
}

// texts are what can be edited of a message.
type texts struct{ Kind, Key, Headers, Body string }

func (t *texts) lines() []string {
	return slices.Concat([]string{"kind: " + t.Kind, "key: " + t.Key}, strings.Split(strings.TrimSuffix(t.Headers, "\n"), "\n"), strings.Split(t.Body, "\n"))
}

// editForm is the page on which one message is edited.
type editForm struct {
	Queue, ID, Path string
	texts
	Was           texts    // when the form was made
	Theirs, Mine  []string // what another changed meanwhile, and what was typed, if another did
	Version, Form string
	Why           string // it cannot be edited here
	Diff          []string
	Preview       bool
	Unchanged     bool
	NotJSON       bool
	Problem       error
	Masked        bool
}

// editable returns a body as it can be typed, or why it cannot. JSON on one line is laid
// out; what would not show is written as JSON escapes it.
func editable(m *wire.Message) (body, why string) {
	b := m.Bytes()
	switch {
	case m.Hidden:
		return "", "the body needs the scope read-payload"
	case m.Masked:
		return "", "parts of it are masked, and an edit would write *** in their place: use a repair, or the command line with a token that has the scope admin"
	case !utf8.Valid(b) || len(b) > laidOut:
		return "", "the body is no text, or too large for a page: use the command line"
	}
	isJSON := json.Valid(b)
	if isJSON && !bytes.Contains(b, []byte("\n")) {
		b = wire.Pretty(b)
	}
	if !bytes.ContainsFunc(b, hides) {
		return string(b), ""
	}
	if !isJSON {
		return "", "the body has characters that do not show: use the command line"
	}
	var out strings.Builder
	for _, r := range string(b) {
		switch {
		case !hides(r):
			out.WriteRune(r)
		case r == '\r':
			out.WriteByte(' ') // between values, as it cannot stand in a string
		case r > 0xffff:
			r -= 0x10000
			fmt.Fprintf(&out, `\u%04x\u%04x`, 0xd800+r>>10, 0xdc00+r&0x3ff)
		default:
			fmt.Fprintf(&out, `\u%04x`, r)
		}
	}
	return out.String(), ""
}

// typed returns what was typed as the body that it stands for: on one line if the body was.
func typed(s string, before []byte) []byte {
	b := []byte(strings.ReplaceAll(s, "\r\n", "\n"))
	if !json.Valid(before) || bytes.Contains(before, []byte("\n")) || !json.Valid(b) {
		return b
	}
	if bytes.Equal(b, wire.Pretty(before)) {
		return before
	}
	var out bytes.Buffer
	if json.Compact(&out, b) != nil {
		return b
	}
	return out.Bytes()
}
