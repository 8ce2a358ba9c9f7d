package gateway

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/problem"
)

// stream publishes a body of NDJSON. Reading goes on while the batch before is
// committed; a batch is whatever came in meanwhile, within its bounds, so that a
// slow sender is answered line by line and a fast one in large commits.
type stream struct {
	g       *Gateway
	w       http.ResponseWriter
	r       *http.Request
	lasting context.Context //nolint:containedctx // of commits
	queue   string
	key     string // Idempotency-Key, from which ids are derived
	control *http.ResponseController
	body    *pacedBody

	mu      sync.Mutex
	changed sync.Cond // of pending and ended
	pending *batch
	ended   bool // no more lines come
	failed  bool // results cannot be delivered any more
	out     []byte
}

// batch is what is committed in one call, with a result for each line of it.
type batch struct {
	msgs  []redrive.Message
	lines []lineResult
	bytes int
	held  int64 // of the gateway's budget
}

// lineResult is the result of one line: of a message, or a problem without one.
type lineResult struct {
	number  int
	message int // index into msgs; -1: none
	problem *problem.Problem
}

// stream answers a request of NDJSON.
func (g *Gateway) stream(w http.ResponseWriter, r *http.Request, queue string) {
	key, err := idempotencyKey(r.Header)
	if err != nil {
		g.refuse(w, r, problem.New(http.StatusBadRequest, "invalid-header", "A request header is not valid", err.Error(), ""))
		return
	}
	if g.limits != nil {
		if level, after := g.limits.Level(queue); level == driver.LevelRefused {
			g.refuse(w, r, problem.Of(redrive.ErrBacklogged).After(max(after, time.Second)))
			return
		}
	}
	base := int64(2*g.o.BatchBytes + firstRead)
	if p := g.inFlight.reserve(base); p != nil {
		g.refuse(w, r, p)
		return
	}
	defer g.inFlight.release(base)

	s := &stream{
		g: g, w: w, r: r, lasting: committing(r.Context()), queue: queue, key: key,
		control: http.NewResponseController(w), body: g.o.Pace.wrap(w, r), pending: new(batch),
	}
	s.changed.L = &s.mu
	_ = s.control.EnableFullDuplex() // HTTP/2 has it anyway
	g.tellRoom(w.Header(), queue)
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("X-Accel-Buffering", "no")

	stop := context.AfterFunc(g.draining, func() {
		s.body.stop(problem.Of(redrive.ErrClosed))
	})
	defer stop()
	var committer sync.WaitGroup
	committer.Go(s.commit)
	s.read()
	committer.Wait()
}

// read takes lines until the body ends.
func (s *stream) read() {
	defer s.end()
	lines := NewLines(s.body, s.g.maxLine)
	for number := 1; ; number++ {
		line, err := lines.Next()
		switch {
		case err == io.EOF: //nolint:errorlint // ours, bare
			return
		case err == ErrTooLong: //nolint:errorlint // ours, bare
			if !s.add(redrive.Message{}, lineResult{number: number, message: -1, problem: s.tooLong()}) {
				return
			}
			continue
		case err != nil:
			s.add(redrive.Message{}, lineResult{number: number, message: -1, problem: s.brokenAt(number, err)})
			return
		}
		if line = bytes.TrimSpace(line); len(line) == 0 {
			continue
		}
		m, p := s.parse(line, number)
		if !s.add(m, lineResult{number: number, problem: p}) {
			return
		}
	}
}

func (s *stream) tooLong() *problem.Problem {
	return problem.New(http.StatusRequestEntityTooLarge, "oversize", "The line is too long",
		fmt.Sprintf("the limit is %d bytes", s.g.maxLine), "keep large data elsewhere and send a reference")
}

// brokenAt is the last result of a stream that did not come to its end.
func (s *stream) brokenAt(number int, err error) *problem.Problem {
	p := *s.g.readProblem(err)
	p.Detail = strings.TrimSuffix(fmt.Sprintf("line %d and what follows were not read: %s", number, p.Detail), ": ")
	return &p
}

// parse makes a message of a line.
func (s *stream) parse(line []byte, number int) (redrive.Message, *problem.Problem) {
	m, err := ParseLine(line)
	if err != nil {
		return m, problem.Of(err)
	}
	m.Queue = s.queue
	if m.ID == "" && s.key != "" {
		m.ID = driver.DeriveID(s.key, strconv.Itoa(number))
	}
	return m, s.g.check(s.r, &m)
}

// add puts a line's message or problem into the pending batch, and waits while that
// is full. It reports whether to go on.
func (s *stream) add(m redrive.Message, l lineResult) bool {
	var held int64
	if size := int64(m.Size()); l.problem == nil && size > int64(s.g.o.BatchBytes) {
		// Beyond what the stream reserved when it began.
		if l.problem = s.g.inFlight.reserve(size); l.problem == nil {
			held = size
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for !s.failed && s.full() {
		s.changed.Wait()
	}
	if s.failed {
		s.g.inFlight.release(held)
		return false
	}
	b := s.pending
	b.held += held
	if l.problem == nil {
		l.message = len(b.msgs)
		b.msgs = append(b.msgs, m)
		b.bytes += m.Size()
	} else {
		l.message = -1
		b.bytes += 256 // about what its result takes
	}
	b.lines = append(b.lines, l)
	s.changed.Broadcast()
	return true
}

func (s *stream) full() bool {
	return len(s.pending.lines) >= s.g.o.BatchCount || s.pending.bytes >= s.g.o.BatchBytes
}

func (s *stream) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	s.changed.Broadcast()
}

// take returns what is pending as soon as there is something, nil at the end.
func (s *stream) take() *batch {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.pending.lines) == 0 && !s.ended {
		s.changed.Wait()
	}
	b := s.pending
	if len(b.lines) == 0 {
		return nil
	}
	s.pending = &batch{msgs: make([]redrive.Message, 0, len(b.msgs)), lines: make([]lineResult, 0, len(b.lines))}
	s.changed.Broadcast()
	return b
}

// commit publishes batches and answers their lines, until the end or until nobody
// reads the answers.
func (s *stream) commit() {
	defer func() {
		if v := recover(); v != nil { // net/http isolates panics of its own goroutine only
			s.g.o.Logger.LogAttrs(s.r.Context(), slog.LevelError, "publish panicked", slog.String("queue", s.queue), slog.Any("panic", v), slog.String("stack", string(debug.Stack())))
			s.fail(problem.Of(fmt.Errorf("panic: %v", v)))
		}
	}()
	for b := s.take(); b != nil; b = s.take() {
		if err := s.publish(b); err != nil {
			s.fail(problem.New(http.StatusRequestTimeout, "results-unread", "The results were not read", err.Error(), "read the answer while sending"))
			return
		}
	}
}

// fail ends the stream: what is pending is given up.
func (s *stream) fail(p *problem.Problem) {
	s.body.stop(p)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failed = true
	s.g.inFlight.release(s.pending.held)
	s.pending = new(batch)
	s.changed.Broadcast()
}

// publish commits a batch and answers its lines. The error is about the answer.
func (s *stream) publish(b *batch) error {
	defer s.g.inFlight.release(b.held)
	if p := Ended(s.r.Context()); p != nil {
		for i := range b.lines {
			if l := &b.lines[i]; l.message >= 0 {
				l.message, l.problem = -1, p
			}
		}
		b.msgs = nil
	}
	if len(b.msgs) == 0 {
		return s.answer(b, nil)
	}
	return s.answer(b, s.g.sink.Publish(s.lasting, b.msgs))
}

// answer writes a line for each line of the batch.
func (s *stream) answer(b *batch, errs []error) error {
	s.out = s.out[:0]
	accepted := 0
	for _, l := range b.lines {
		if l.message < 0 {
			s.g.note(s.r.Context(), s.queue, "", l.problem)
			s.out = appendProblem(s.out, l.number, l.problem)
			continue
		}
		m := &b.msgs[l.message]
		var err error
		if errs != nil {
			err = errs[l.message]
		}
		duplicate := errors.Is(err, redrive.ErrDuplicate)
		if err != nil && !duplicate {
			p := s.g.publishProblem(s.queue, err)
			s.g.note(s.r.Context(), s.queue, m.ID, p)
			s.out = appendProblem(s.out, l.number, p)
			continue
		}
		if !duplicate {
			accepted++
		}
		s.out = appendAccepted(s.out, l.number, m.ID, duplicate)
	}
	if accepted > 0 {
		s.g.o.Accepted(s.queue, accepted)
	}
	s.log(b, errs)
	_ = s.control.SetWriteDeadline(time.Now().Add(s.g.o.WriteTimeout)) // not every writer has deadlines
	if _, err := s.w.Write(s.out); err != nil {
		return err
	}
	if err := s.control.Flush(); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	return nil
}

// log writes a line for each accepted message, where anyone listens at that level.
func (s *stream) log(b *batch, errs []error) {
	ctx := s.r.Context()
	if !s.g.o.Logger.Enabled(ctx, slog.LevelDebug) {
		return
	}
	for i := range b.msgs {
		if errs != nil && errs[i] != nil {
			continue
		}
		m := &b.msgs[i]
		s.g.o.Logger.LogAttrs(ctx, slog.LevelDebug, "accepted", slog.String("queue", m.Queue), slog.String("id", m.ID),
			slog.String("kind", m.Kind), slog.Int("bytes", m.Size()))
	}
}

func appendAccepted(out []byte, number int, id string, duplicate bool) []byte {
	out = append(out, `{"line":`...)
	out = strconv.AppendInt(out, int64(number), 10)
	out = append(out, `,"id":"`...)
	out = append(out, id...)
	if duplicate {
		return append(out, "\",\"status\":\"duplicate\"}\n"...)
	}
	return append(out, "\",\"status\":\"accepted\"}\n"...)
}

func appendProblem(out []byte, number int, p *problem.Problem) []byte {
	out = append(out, `{"line":`...)
	out = strconv.AppendInt(out, int64(number), 10)
	out = append(out, `,"status":"error","error":`...)
	out = p.AppendJSON(out)
	return append(out, "}\n"...)
}
