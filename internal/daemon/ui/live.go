package ui

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"regexp"
	"runtime/debug"
	"sync"
	"time"

	"github.com/redrive/redrive/internal/daemon/events"
	"github.com/redrive/redrive/internal/problem"
)

// liveAt is below which path the streams of pages are.
const liveAt = "/live"

// Times of the stream that keeps a page up to date.
const (
	streamFor   = 10 * time.Minute // then the page connects anew, which keeps its session from being idle
	streamBeat  = 2 * time.Second  // after a look that changed nothing
	streamWrite = 10 * time.Second // for one write
)

// live keeps the pages up to date that are open. While anybody looks at one, the page is made anew
// about every second, once for all who look at it with the same token, and the fragments that
// changed are sent. It rests ten times as long as that takes.
type live struct {
	u   *UI
	hub *events.Hub[audience]

	mu    sync.Mutex
	shown map[string]*shown                         // by audience and topic
	open  map[string]map[*stream]context.CancelFunc // by the form token of their session
}

// audience is for whom fragments are made.
type audience struct{ ticket Ticket }

func (a audience) key() string {
	return a.ticket.ID + "\x00" + string(a.ticket.Digest) + "\x00" + a.ticket.Person
}

// shown is a page that somebody looks at.
type shown struct {
	route     *route
	r         *http.Request // by which it was asked for first
	listeners int
	looked    time.Time // when it was made last
}

// fragment is a part of a page that changes by itself: one element, with its id in the page.
type fragment struct {
	ID, Template string
	Data         any
}

// changing is a page with fragments. The order of its rows is none of them: rows that come, go or
// change places wait until the reader asks for them.
type changing interface {
	fragments() []fragment
	order() []string
}

// orderKey is the key under which a page sends the order of its rows.
const orderKey = "order"

// trouble is the key of what is sent in place of a page that cannot be made now.
const trouble = "trouble"

func newLive(u *UI) *live {
	l := &live{u: u, shown: make(map[string]*shown), open: make(map[string]map[*stream]context.CancelFunc)}
	l.hub = events.New(l.look)
	return l
}

// look implements [events.Look]. What there is to see differs by audience, so the view looks.
func (l *live) look(ctx context.Context, _ map[string]bool) (events.View[audience], error) {
	return func(a audience, topic string) map[string]any { return l.page(ctx, a, topic) }, nil
}

// page makes the fragments of a page.
func (l *live) page(ctx context.Context, a audience, topic string) (items map[string]any) {
	defer func() {
		if v := recover(); v != nil { // nobody else would: this is no goroutine of a request
			l.u.o.Logger.LogAttrs(ctx, slog.LevelError, "page panicked", slog.String("page", topic), slog.Any("panic", v), slog.String("stack", string(debug.Stack())))
			items = map[string]any{trouble: "The page failed; the log says why"}
		}
	}()
	s := l.of(a, topic)
	if s == nil { // they left meanwhile
		return nil
	}
	ctx, who, err := l.u.o.Door.Enter(ctx, a.ticket)
	if err != nil { // their streams end by themselves
		return nil
	}
	v := &visit{u: l.u, w: &answer{header: make(http.Header)}, r: s.r.Clone(ctx), now: l.u.o.Now().UTC(), who: who, route: s.route, form: formOfReader, made: new(madePage)}
	if err := v.admit(s.route); err != nil {
		return map[string]any{trouble: problem.Of(err).Title}
	}
	if err := s.route.serve(v); err != nil {
		return map[string]any{trouble: problem.Of(err).Title}
	}
	items, err = l.u.pages.render(v.made)
	if err != nil {
		l.u.o.Logger.LogAttrs(ctx, slog.LevelError, "page failed", slog.String("page", v.made.name), slog.Any("error", err))
		return map[string]any{trouble: "The page failed; the log says why"}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	s.looked = v.now
	return items
}

// formOfReader stands for the token of forms, which each reader's script puts in: fragments are
// the same for all of them.
const formOfReader = "reader"

// madePage is a page before it is written.
type madePage struct {
	name string
	page any
}

// agoText is the text of a time that runs, which the reader's script writes.
var agoText = regexp.MustCompile(`(<time data-ago [^>]*>)[^<]*`)

// render returns the fragments of a page by their ids.
func (p *pages) render(made *madePage) (map[string]any, error) {
	items := make(map[string]any)
	of, ok := made.page.(changing)
	if !ok {
		return items, nil
	}
	for _, f := range of.fragments() {
		var b bytes.Buffer
		if err := p.byName[made.name].ExecuteTemplate(&b, f.Template, f.Data); err != nil {
			return nil, err
		}
		items[f.ID] = string(agoText.ReplaceAll(visible(b.Bytes()), []byte("$1")))
	}
	if rows := of.order(); rows != nil {
		items[orderKey] = rows
	}
	return items, nil
}

func (l *live) of(a audience, topic string) *shown {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.shown[a.key()+"\x00"+topic]
}

// enter notes that somebody looks at a page, until leave is called.
func (l *live) enter(a audience, topic string, p *route, r *http.Request) (s *shown, leave func()) {
	key := a.key() + "\x00" + topic
	l.mu.Lock()
	defer l.mu.Unlock()
	if s = l.shown[key]; s == nil {
		s = &shown{route: p, r: r}
		l.shown[key] = s
	}
	s.listeners++
	return s, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if s.listeners--; s.listeners == 0 {
			delete(l.shown, key)
		}
	}
}

// lookedSince reports whether a page was made anew after a time.
func (l *live) lookedSince(s *shown, at time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return s.looked.After(at)
}

// streamed returns the handler of the stream that keeps a page up to date.
func (u *UI) streamed(p *route) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		v := &visit{u: u, w: w, r: r, now: u.o.Now().UTC(), route: p}
		who, err := u.identify(v)
		v.who = who
		if err == nil {
			err = v.admit(p)
		}
		if err == nil {
			err = u.live.stream(v)
		}
		if err != nil {
			v.fail(err)
		}
	})
}

// stream writes to one reader until they leave, the token or the session ends, or the daemon does.
func (l *live) stream(v *visit) error {
	a, topic := audience{v.ticket}, v.r.URL.Path+"?"+v.query.Encode()
	s, leave := l.enter(a, topic, v.route, v.r)
	defer leave()
	in, err := l.hub.Listen(a.key(), a, topic)
	switch {
	case errors.Is(err, events.ErrFull):
		return problem.New(http.StatusServiceUnavailable, "listeners", "Too many pages are open", fmt.Sprintf("there are %d", events.MaxListeners), "this one is loaded again every few seconds instead").After(5 * time.Second)
	case err != nil:
		return problem.New(http.StatusServiceUnavailable, "shutting-down", "The daemon shuts down", "", "come back").After(time.Second)
	}
	defer in.Leave()
	r, release := l.u.o.Door.Hold(v.r, v.ticket)
	defer release()
	ctx, cancel := context.WithTimeout(r.Context(), min(streamFor, v.left))
	defer cancel()
	h := v.w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("X-Accel-Buffering", "no") // else nginx would keep it back
	out := &stream{w: v.w, control: http.NewResponseController(v.w)}
	defer context.AfterFunc(ctx, out.hurry)()
	defer l.opened(v.form, out, cancel)()
	l.run(ctx, out, in, s)
	return nil
}

// opened notes an open stream of a session, until closed is called.
func (l *live) opened(session string, s *stream, end context.CancelFunc) (closed func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open[session] == nil {
		l.open[session] = make(map[*stream]context.CancelFunc)
	}
	l.open[session][s] = end
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if delete(l.open[session], s); len(l.open[session]) == 0 {
			delete(l.open, session)
		}
	}
}

// end ends the streams of a session, which was left, in all its tabs.
func (l *live) end(session string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, end := range l.open[session] {
		end()
	}
}

// run writes rounds, and beats between them as long as the page is looked at.
func (l *live) run(ctx context.Context, out *stream, in *events.Listener, s *shown) {
	beat := time.NewTicker(streamBeat)
	defer beat.Stop()
	ok, last := out.write([]byte("retry: 1000\n\n")), l.u.o.Now()
	for ok {
		select {
		case <-ctx.Done():
			return
		case round, open := <-in.Rounds():
			if !open {
				return
			}
			var b []byte
			for i := range round.Events {
				if e := &round.Events[i]; in.Wants(e.Topic) {
					b = fmt.Appendf(b, "event: part\ndata: %s\n\n", e.Data)
				}
			}
			if len(b) > 0 {
				ok, last = out.write(b), l.u.o.Now()
			}
		case <-beat.C:
			if l.lookedSince(s, last) {
				ok, last = out.write([]byte("event: beat\ndata: .\n\n")), l.u.o.Now()
			}
		}
	}
}

// stream is a connection to one reader.
type stream struct {
	w       http.ResponseWriter
	control *http.ResponseController
}

// hurry ends a write that a slow reader keeps waiting.
func (s *stream) hurry() { _ = s.control.SetWriteDeadline(time.Now()) } // not every writer has deadlines

func (s *stream) write(b []byte) bool {
	_ = s.control.SetWriteDeadline(time.Now().Add(streamWrite)) // likewise
	if _, err := s.w.Write(b); err != nil {
		return false
	}
	err := s.control.Flush()
	return err == nil || errors.Is(err, http.ErrNotSupported)
}
