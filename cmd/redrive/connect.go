package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"sync"
	"time"

	ws "github.com/redrive/redrive/client"
	"github.com/redrive/redrive/driver"
)

// connectCmd opens a WebSocket session.
type connectCmd struct {
	remote  `embed:""`
	Queue   string `arg:"" help:"The queue."`
	Kind    string `short:"k" placeholder:"KIND" help:"The messages' type."`
	Session string `placeholder:"FILE" help:"Keep the session in a file, and go on with it."`
	Mute    bool   `help:"Do not wait for results, only for acknowledgements."`
}

func (*connectCmd) Help() string {
	return examples(
		"redrive connect hooks", "a session over WebSocket: each line is a message, results appear as they come",
		"seq 1000 | redrive connect hooks --json > results.ndjson", "the same in a pipe: it ends when every result has come",
		"redrive connect hooks --session chat.json", "what is missing comes when the session is resumed",
	)
}

// maxConnectLine bounds a line, in bytes: what a frame of the server holds by default.
const maxConnectLine = 1 << 20

// Run sends lines until the input ends, and waits for their results.
func (c *connectCmd) Run(ctx context.Context, t *terminal) error {
	if err := driver.CheckQueue(c.Queue); err != nil {
		return usageError{err}
	}
	daemon, err := c.connect(ctx)
	if err != nil {
		return err
	}
	defer daemon.close() //nolint:errcheck // what was acknowledged is safe
	own, end := t.shared()
	defer end()
	s := &connection{t: own, quit: make(chan struct{})}
	o := ws.Options{Token: c.Token, HTTPClient: daemon.http, OnResult: s.result, OnGap: s.gap, OnSlowDown: s.slow, OnState: s.state}
	if o.Session, err = c.load(); err != nil {
		return err
	}
	dial, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	if s.client, err = ws.Dial(dial, "ws"+strings.TrimPrefix(daemon.base, "http")+"/v1/ws", o); err != nil {
		return err
	}
	err = s.run(ctx, c)
	return errors.Join(err, c.leave(s))
}

// load reads the session's file, if there is one.
func (c *connectCmd) load() (*ws.Session, error) {
	if c.Session == "" {
		return nil, nil //nolint:nilnil // there is none
	}
	b, err := os.ReadFile(c.Session)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil //nolint:nilnil // there is none yet
	}
	if err != nil {
		return nil, err
	}
	s := new(ws.Session)
	if err := json.Unmarshal(b, s); err != nil {
		return nil, fmt.Errorf("session in %s: %w", c.Session, err)
	}
	return s, nil
}

// leave ends the session, or keeps it in its file.
func (c *connectCmd) leave(s *connection) error {
	if c.Session != "" {
		s.client.Close()
		b, err := json.Marshal(s.client.Session())
		if err != nil {
			return err
		}
		return os.WriteFile(c.Session, b, 0o600)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_ = s.client.Bye(ctx) // a session that cannot be ended expires
	return nil
}

// connection is a session at a terminal.
type connection struct {
	t      *terminal
	client *ws.Client
	quit   chan struct{}

	mu       sync.Mutex
	sent     int
	refused  int
	results  int
	dead     int
	answered chan struct{} // closed when there are as many results as messages; nil: nobody waits
	up       bool
}

func (s *connection) run(ctx context.Context, c *connectCmd) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-s.client.Done():
			cancel(s.client.Err())
		case <-ctx.Done():
		}
	}()
	if s.t.inTTY {
		s.t.note("session %s: each line is a message to %s; end with Ctrl-D", clean(s.client.Session().ID), clean(c.Queue))
	}
	lines := make(chan []byte)
	read := make(chan error, 1)
	go func() { read <- readLines(ctx, s.t, lines) }()
	for line := range lines {
		m := &ws.Message{Queue: c.Queue, Kind: c.Kind, Body: line, NoResult: c.Mute}
		p, err := s.client.Send(ctx, m)
		if err != nil {
			return context.Cause(ctx)
		}
		s.mu.Lock()
		s.sent++
		s.mu.Unlock()
		go s.await(p)
	}
	if err := <-read; err != nil {
		return err
	}
	if err := s.client.Flush(ctx); err != nil {
		return context.Cause(ctx)
	}
	if err := s.rest(ctx, c.Mute); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.t.note("%s sent, %s refused, %s results, %s of them dead or dropped", grouped(int64(s.sent)), grouped(int64(s.refused)), grouped(int64(s.results)), grouped(int64(s.dead)))
	if s.refused+s.dead > 0 {
		return errFailed
	}
	return nil
}

// rest waits for the results that are missing.
func (s *connection) rest(ctx context.Context, mute bool) error {
	s.mu.Lock()
	missing := s.sent - s.refused - s.results
	if mute || missing <= 0 {
		s.mu.Unlock()
		return nil
	}
	answered := make(chan struct{})
	s.answered = answered
	s.mu.Unlock()
	if s.t.inTTY {
		s.t.note("waiting for %s results; Ctrl-C to leave", grouped(int64(missing)))
	}
	select {
	case <-answered:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func readLines(ctx context.Context, t *terminal, lines chan<- []byte) error {
	defer close(lines)
	in := bufio.NewScanner(t.in)
	in.Buffer(nil, maxConnectLine)
	for in.Scan() {
		if len(in.Bytes()) == 0 {
			continue
		}
		select {
		case lines <- append([]byte(nil), in.Bytes()...):
		case <-ctx.Done():
			return nil
		}
	}
	return in.Err()
}

// await tells of a message that is refused.
func (s *connection) await(p *ws.Pending) {
	<-p.Done()
	err := p.Err()
	if err == nil || errors.Is(err, ws.ErrClosed) {
		return
	}
	s.t.printError(err)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refused++
	s.checkLocked()
}

func (s *connection) checkLocked() {
	if s.answered != nil && s.sent-s.refused-s.results <= 0 {
		close(s.answered)
		s.answered = nil
	}
}

func (s *connection) result(r *ws.Result) {
	s.show(r)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.results++
	if !r.Done() {
		s.dead++
	}
	s.checkLocked()
}

// shownResult is a result in JSON.
type shownResult struct {
	Number  uint64          `json:"number"`
	Seq     uint64          `json:"seq"`
	Queue   string          `json:"queue"`
	ID      string          `json:"id"`
	Outcome string          `json:"outcome"`
	Reason  string          `json:"reason,omitempty"`
	Error   string          `json:"error,omitempty"`
	Status  int             `json:"status,omitempty"`
	Body    json.RawMessage `json:"body,omitempty"`
	Base64  []byte          `json:"body_base64,omitempty"`
}

func (s *connection) show(r *ws.Result) {
	if s.t.json {
		out := shownResult{Number: r.Number, Seq: r.Seq, Queue: r.Queue, ID: r.ID, Outcome: r.Outcome, Reason: r.Reason, Error: r.Error, Status: r.Status}
		if json.Valid(r.Body) {
			out.Body = r.Body
		} else {
			out.Base64 = r.Body
		}
		b, _ := json.Marshal(&out) // it always encodes
		s.t.printf("%s\n", b)
		return
	}
	colour, detail := good, ""
	if r.Status > 0 {
		detail = fmt.Sprint(r.Status)
	}
	if !r.Done() {
		colour, detail = bad, r.Reason+": "+r.Error
	}
	s.t.printf("#%d %s %s %s\n", r.Seq, s.t.paint(colour, clean(r.Outcome)), clean(detail), shorten(clean(string(r.Body)), 400))
}

func (s *connection) gap(session bool, lost uint64) {
	if session {
		s.t.note("the session is lost: results of earlier messages do not come")
		return
	}
	s.t.note("%s results expired", grouped(int64(lost))) //nolint:gosec // a count
}

func (s *connection) slow(d ws.SlowDown) {
	if d.Level == "ok" {
		s.t.note("the server is ready again")
		return
	}
	s.t.note("the server asks to slow down: %s %s", clean(d.Queue), clean(d.Level))
}

func (s *connection) state(connected bool, why error) {
	s.mu.Lock()
	again := connected && !s.up && s.results+s.sent > 0
	s.up = connected
	s.mu.Unlock()
	switch {
	case again:
		s.t.note("connected again")
	case !connected && why != nil && !errors.Is(why, context.Canceled):
		s.t.note("the connection is lost: %s", cleanText(why.Error()))
	}
}
