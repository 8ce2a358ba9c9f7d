package daemon

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/guard/httpguard"
	"github.com/redrive/redrive/internal/daemon/config"
	"github.com/redrive/redrive/internal/jsonmask"
	"github.com/redrive/redrive/internal/wire"
)

// masks are what the configuration hides of a queue's messages.
type masks struct {
	named   []string // as the configuration has them
	paths   []jsonmask.Path
	headers []string
}

// noMasks hide nothing.
var noMasks = new(masks)

// masksIn returns the masks of every configured queue, and under "" those of all others.
func masksIn(cfg *config.Config) map[string]*masks {
	all := make(map[string]*masks, len(cfg.Queues)+1)
	for _, queue := range append(slices.Collect(maps.Keys(cfg.Queues)), "") {
		named, paths, headers := cfg.MasksOf(queue)
		all[queue] = &masks{named, paths, headers}
	}
	return all
}

// masksOf returns what is hidden of a queue's messages.
func (a *app) masksOf(queue string) *masks {
	l := a.live.Load()
	if l == nil {
		return noMasks
	}
	if k, ok := l.masks[queue]; ok {
		return k
	}
	return l.masks[""]
}

// masksOver returns what is hidden of a queue's messages, or, without a name, of those
// of any queue.
func (a *app) masksOver(queue string) *masks {
	l := a.live.Load()
	if l == nil || queue != "" {
		return a.masksOf(queue)
	}
	over := new(masks)
	for _, k := range l.masks {
		over.named, over.paths, over.headers = append(over.named, k.named...), append(over.paths, k.paths...), append(over.headers, k.headers...)
	}
	return over
}

// none reports that nothing is hidden.
func (k *masks) none() bool { return len(k.named) == 0 }

// missing returns what others hide and these do not.
func (k *masks) missing(others *masks) (names []string) {
	for _, name := range others.named {
		if !slices.Contains(k.named, name) && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// header reports whether the value of a header is masked.
func (k *masks) header(name string) bool {
	return slices.ContainsFunc(k.headers, func(m string) bool { return strings.EqualFold(m, name) })
}

// body returns a body as it shows, and whether anything of it is hidden. One that is not
// JSON is hidden whole, as nobody knows what is in it.
func (k *masks) body(body []byte) (shown []byte, hit bool) {
	if k.none() || len(body) == 0 {
		return body, false
	}
	request, hit := k.putOff(body)
	if hit {
		body = request
	}
	if len(k.paths) == 0 {
		return body, hit
	}
	shown, masked, err := jsonmask.Apply(body, k.paths)
	if err != nil {
		return []byte(jsonmask.Hidden), true
	}
	return shown, hit || masked
}

// putOff masks within the request that a guard put off, whose body is not JSON within
// JSON but in base64. Any message that looks like one is taken for one: an edit may change
// its kind, a plan its queue.
func (k *masks) putOff(body []byte) (shown []byte, hit bool) {
	var r httpguard.Request
	if json.Unmarshal(body, &r) != nil || r.Method != http.MethodPost {
		return nil, false
	}
	for name := range r.Header {
		if k.header(name) {
			r.Header[name], hit = []string{jsonmask.Hidden}, true
		}
	}
	if len(k.paths) > 0 && len(r.Body) > 0 {
		inner, _, err := jsonmask.Apply(r.Body, k.paths)
		if err != nil {
			inner = []byte(jsonmask.Hidden)
		}
		hit = hit || string(inner) != string(r.Body)
		r.Body = inner
	}
	if !hit {
		return nil, false
	}
	shown, err := json.Marshal(r)
	return shown, err == nil
}

// text returns a text that may quote bodies, such as an error, as it shows.
func (k *masks) text(text string) (shown string, hit bool) {
	if len(k.paths) == 0 {
		return text, false
	}
	return jsonmask.Text(text, k.paths)
}

// answer returns what a target answered as it shows: one that is not JSON is hidden whole, as a
// body is.
func (k *masks) answer(text string) (shown string, hit bool) {
	if len(k.paths) > 0 && text != "" && !json.Valid([]byte(text)) {
		return jsonmask.Hidden, true
	}
	return k.text(text)
}

// whole masks a message and the one that it was before it was edited.
func (k *masks) whole(m *wire.Message) {
	k.parts(m)
	k.quoted(m)
	if m.Original != nil {
		k.parts(m.Original)
		m.Masked = m.Masked || m.Original.Masked
	}
}

// size is that of what shows of a body, also for whoever does not see it.
func (k *masks) size(m *wire.Message, of *redrive.Message) {
	shown, _ := k.body(of.Body)
	size := len(shown)
	m.Size = &size
}

// parts masks headers and body of a message, also the length of what it hides.
func (k *masks) parts(m *wire.Message) {
	for i := range m.Headers {
		if k.header(m.Headers[i].Name) {
			m.Headers[i].Value, m.Masked = []byte(jsonmask.Hidden), true
		}
	}
	if body, hit := k.body(m.Bytes()); hit {
		text, size := string(body), len(body)
		m.Body, m.BodyBase64, m.Size, m.Masked = &text, nil, &size, true
	}
}

// quoted masks what failures quote of bodies and of answers. A worker may report anything
// anywhere.
func (k *masks) quoted(m *wire.Message) {
	if len(k.paths) == 0 {
		return
	}
	hide := func(texts ...*string) {
		for _, text := range texts {
			masked, hit := k.text(*text)
			*text, m.Masked = masked, m.Masked || hit
		}
	}
	hide(&m.Error, &m.Type)
	if m.History == nil {
		return
	}
	for _, f := range []*wire.Failure{m.History.First, m.History.Last} {
		if f == nil {
			continue
		}
		hide(&f.Message, &f.Stack, &f.Host, &f.IP, &f.Service, &f.Version, &f.Environment, &f.TraceID)
		f.Types = slices.Clone(f.Types) // the store may share its own, and so below
		for i := range f.Types {
			hide(&f.Types[i])
		}
		details := maps.Clone(f.Details)
		for name, text := range details {
			if name == driver.DetailAnswer {
				var hit bool
				details[name], hit = k.answer(text)
				m.Masked = m.Masked || hit
				continue
			}
			hide(&text)
			details[name] = text
		}
		f.Details = details
	}
}

// failure returns what shows of a failure where its cause is looked for.
func (k *masks) failure(f *redrive.Failure) *redrive.Failure {
	if len(k.paths) == 0 {
		return f
	}
	hide := func(text string) string {
		shown, _ := k.text(text)
		return shown
	}
	shown := *f
	shown.Message, shown.Stack, shown.Types = hide(f.Message), hide(f.Stack), slices.Clone(f.Types)
	for i := range shown.Types {
		shown.Types[i] = hide(shown.Types[i])
	}
	answer, _ := k.answer(f.Details[driver.DetailAnswer])
	shown.Details = map[string]string{driver.DetailStatus: hide(f.Details[driver.DetailStatus]), driver.DetailAnswer: answer} // a worker may report anything
	return &shown
}

// shownText returns a text about messages of a queue as it shows.
func (a *app) shownText(queue, text string) string {
	shown, _ := a.masksOf(queue).text(text)
	return shown
}

// masking is what a store or the engine masks by, always by the configuration in force.
func (a *app) masking() driver.Masks {
	return driver.Masks{
		Body: func(m *redrive.Message) []byte {
			shown, _ := a.masksOf(m.Queue).body(m.Body)
			return shown
		},
		Text: a.shownText,
		Answer: func(queue, answer string) string {
			shown, _ := a.masksOf(queue).answer(answer)
			return shown
		},
	}
}

// mask lets a store or a sink work with the masks, if it can.
func (a *app) mask(of any) {
	if masked, ok := driver.As[driver.Masked](of); ok {
		masked.SetMasks(a.masking())
	}
}
