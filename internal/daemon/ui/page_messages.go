package ui

import (
	"bytes"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/redrive/redrive/internal/linediff"
	"github.com/redrive/redrive/internal/problem"
	"github.com/redrive/redrive/internal/wire"
)

func showDead(v *visit) error {
	v.title = "Dead letters"
	f := wire.FilterFrom(v.query)
	var list wire.List[wire.Message]
	var err error
	if f.Queue == "" && v.who.confined() {
		queues, err := v.queues()
		if err != nil {
			return err
		}
		return v.chooseQueue(queues, &f)
	}
	ask := f.Parameters()
	ask.Set("limit", strconv.Itoa(deadPageSize))
	if after := v.query.Get("after"); after != "" {
		ask.Set("after", after)
	}
	if list, err = get[wire.List[wire.Message]](v, at("dead-letters"), ask); err != nil {
		return err
	}
	p := viewDead(&list, &f, v.query.Get("after"), v.now)
	if len(p.Rows) > 0 {
		p.Actions = []action{
			v.link("Redrive all that match…", withQuery("/redrive", f.Parameters()), "redrive").as("main"),
			v.link("Repair…", withQuery("/repairs/new", f.Parameters()), "redrive", "read-payload"),
			v.link("Archive…", withQuery("/archive", f.Parameters()), "redrive"),
			v.link("Drop…", withQuery("/drop", f.Parameters()), "redrive", "purge").as("danger"),
		}
	}
	v.show(http.StatusOK, "dead", p)
	return nil
}

// choice leads a caller who is confined to queues to one of them.
type choice struct{ Rows []queueRow }

func (v *visit) chooseQueue(queues []wire.Queue, f *wire.Filter) error {
	var p choice
	for i := range queues {
		row := queueRowOf(&queues[i], v.now)
		one := *f
		one.Queue = row.Queue
		row.Path = withQuery("/dead", one.Parameters())
		p.Rows = append(p.Rows, row)
	}
	v.show(http.StatusOK, "choose", p)
	return nil
}

// message asks for the message that the path names.
func (v *visit) message() (wire.Message, error) {
	queue, id := v.r.PathValue("queue"), v.r.PathValue("id")
	return get[wire.Message](v, at("queues", queue, "messages", id), nil)
}

func showMessage(v *visit) error {
	as := v.query.Get("as")
	if as != "" && as != asJSON && as != asRaw && as != asHex {
		return bad("as "+strconv.Quote(as), "use json, raw or hex")
	}
	m, err := v.message()
	if err != nil {
		return err
	}
	v.title = m.ID
	p := viewMessage(&m, as, v.now)
	if in := v.query.Get("in"); in != "" {
		list, err := url.ParseQuery(in)
		if err != nil {
			return bad("in cannot be read", err.Error())
		}
		p.Back = withQuery("/dead", list)
	}
	if m.State == "dead" {
		ref := field{"refs", m.Queue + "/" + m.ID}
		p.Actions = []action{
			v.press("Redrive", "/redrive", "redrive", ref, field{"act", "now"}).as("main"),
			v.link("Edit…", p.Path+"/edit", "redrive"),
		}
		drop := v.press("Drop", p.Path+"/drop", "purge").as("danger")
		p.Drop = &drop
	}
	v.show(http.StatusOK, "message", p)
	return nil
}

// sendBody is the download of a body: as bytes, which no browser shows.
func sendBody(v *visit) error {
	m, err := v.message()
	if err != nil {
		return err
	}
	if m.Hidden {
		return problem.New(http.StatusForbidden, "forbidden", "The token does not allow this", "bodies need the scope read-payload", "")
	}
	body := m.Bytes()
	h := v.w.Header()
	h.Set("Content-Type", "application/octet-stream")
	h.Set("Content-Disposition", fmt.Sprintf(`attachment; filename="%s"`, strings.ReplaceAll(m.ID, ":", "_")))
	h.Set("Content-Length", strconv.Itoa(len(body)))
	_, _ = v.w.Write(body) // whoever left does not need it
	return nil
}

// changed shows what differs between two forms of a message.
func changed(before, after *wire.Message) []string {
	return linediff.Lines(before.Lines(), after.Lines())
}

func (v *visit) editForm(m *wire.Message) editForm {
	f := editForm{Queue: m.Queue, ID: m.ID, Path: messagePath(m.Queue, m.ID), texts: texts{Kind: m.Kind, Key: m.Key}, Version: m.Version, Form: v.form, Masked: m.Masked}
	if f.Body, f.Why = editable(m); m.State != "dead" {
		f.Why = "it is " + m.State + ", and only dead letters are edited"
	}
	if f.Why == "" {
		f.Why = v.lacks("redrive")
	}
	var b strings.Builder
	for _, h := range m.Headers {
		fmt.Fprintf(&b, "%s: %s\n", h.Name, h.Value)
		if f.Why == "" && bytes.ContainsAny(h.Value, "\r\n") { // a line of the form is a header
			f.Why = fmt.Sprintf("the header %q has a line break: use the command line", h.Name)
		}
	}
	f.Headers = b.String()
	if f.Why == "" && strings.ContainsFunc(f.Headers+f.Kind+f.Key, hides) {
		f.Why = "kind, key or a header has characters that do not show: use the command line"
	}
	f.Was = f.texts
	return f
}

func showEdit(v *visit) error {
	m, err := v.message()
	if err != nil {
		return err
	}
	v.title = "Edit " + m.ID
	v.show(http.StatusOK, "edit", v.editForm(&m))
	return nil
}

// edit shows what an edit would change, and saves it when that was looked at.
func edit(v *visit) error {
	m, err := v.message()
	if err != nil {
		return err
	}
	v.title = "Edit " + m.ID
	f := v.editForm(&m)
	if f.Why != "" {
		return problem.New(http.StatusForbidden, "forbidden", "It cannot be edited here", f.Why, "")
	}
	f.Kind, f.Key, f.NotJSON = v.r.PostForm.Get("kind"), v.r.PostForm.Get("key"), v.value("not_json") != ""
	sent := func(name string) string { return strings.ReplaceAll(v.r.PostForm.Get(name), "\r\n", "\n") }
	f.Body, f.Headers = sent("body"), sent("headers")
	change, after, err := f.change(&m)
	if err != nil {
		return v.editAgain(&f, err)
	}
	f.Diff = changed(&m, after)
	f.Unchanged = len(f.Diff) == 0
	if v.value("version") != m.Version {
		if was := (texts{sent("was_kind"), sent("was_key"), sent("was_headers"), sent("was_body")}); was != (texts{}) {
			f.Theirs, f.Mine = linediff.Lines(was.lines(), f.Was.lines()), linediff.Lines(was.lines(), f.lines())
		}
		return v.editAgain(&f, problem.New(http.StatusConflict, "conflict", "The message was changed meanwhile", "below is what another changed, what you changed, and what your text would change of how it is now", "take over what is missing, and save again"))
	}
	if v.value("act") != "save" || f.Unchanged {
		f.Preview = !f.Unchanged
		v.show(http.StatusOK, "edit", f)
		return nil
	}
	if _, err := send[wire.Changed](v, http.MethodPatch, at("queues", m.Queue, "dead-letters", m.ID), change); err != nil {
		return v.editAgain(&f, err)
	}
	return v.redirect(f.Path)
}

// editAgain shows the form with what was typed and why it was not saved.
func (v *visit) editAgain(f *editForm, err error) error {
	p := problem.Of(err)
	if p.Internal() {
		return err
	}
	f.Problem = p
	v.show(p.Status, "edit", f)
	return nil
}

// change returns what was typed as an edit, and the message as it would be.
func (f *editForm) change(m *wire.Message) (*wire.Edit, *wire.Message, error) {
	after := *m
	e := &wire.Edit{Version: m.Version, NotJSON: f.NotJSON}
	if body := typed(f.Body, m.Bytes()); string(body) != string(m.Bytes()) {
		s := string(body)
		e.Body, after.Body, after.BodyBase64 = &s, &s, nil
	}
	if f.Kind != m.Kind {
		e.Kind, after.Kind = &f.Kind, f.Kind
	}
	if f.Key != m.Key {
		e.Key, after.Key = &f.Key, f.Key
	}
	headers := []wire.Header{}
	for line := range strings.Lines(strings.ReplaceAll(f.Headers, "\r\n", "\n")) {
		if line = strings.TrimSuffix(line, "\n"); strings.TrimSpace(line) == "" {
			continue
		}
		name, value, ok := strings.Cut(line, ":")
		if !ok {
			return nil, nil, bad(fmt.Sprintf("the header %q", line), "write NAME: VALUE on each line")
		}
		headers = append(headers, wire.Header{Name: strings.TrimSpace(name), Value: []byte(strings.TrimPrefix(value, " "))})
	}
	same := len(headers) == len(m.Headers)
	for i := 0; same && i < len(headers); i++ {
		same = headers[i].Name == m.Headers[i].Name && string(headers[i].Value) == string(m.Headers[i].Value)
	}
	if !same {
		e.Headers, after.Headers = &headers, headers
	}
	return e, &after, nil
}

func dropOne(v *visit) error {
	queue, id := v.r.PathValue("queue"), v.r.PathValue("id")
	if v.value("id") != id {
		return bad("the id was not typed as it is", "type the id of the message to drop it")
	}
	if _, err := send[wire.Changed](v, http.MethodDelete, at("queues", queue, "dead-letters", id), struct{}{}); err != nil {
		return err
	}
	return v.redirect(messagePath(queue, id))
}
