package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/coder/websocket"
)

const (
	sessionConns = 100
	sessionBatch = 64   // messages of a session on their way at once
	sessionRate  = 5000 // messages a second over all sessions
)

// Sessioner is a Queue that is reached over WebSocket: each caller has a connection of
// its own.
type Sessioner interface {
	Batcher
	Session(ctx context.Context) (publish func(bodies int) error, closer func(), err error)
}

var sessionWorkloads = []Workload{
	{"sessions", "100 connections, 64 messages at a time on each", sessions},
	{"sessions-rate", "5,000 messages a second over 100 connections, from the send of a message to its acknowledgement", sessionsAtRate},
}

var wsBare = Driver{
	Name:       "WebSocket, bare echo",
	Version:    func() string { return "coder/websocket" },
	Settings:   "sends each frame back",
	Durability: "none",
	Open: func(string) (Queue, error) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		s := &http.Server{Handler: http.HandlerFunc(echo)}
		go func() { _ = s.Serve(l) }()
		return &wsQueue{addr: l.Addr().String(), bare: true, close: s.Close}, nil
	},
}

// echo is the least that a server on the library can do.
func echo(w http.ResponseWriter, r *http.Request) {
	c, err := websocket.Accept(w, r, nil)
	if err != nil {
		return
	}
	defer func() { _ = c.CloseNow() }()
	for {
		typ, b, err := c.Read(context.Background())
		if err != nil || c.Write(context.Background(), typ, b) != nil {
			return
		}
	}
}

var wsRedrive = Driver{
	Name:       "WebSocket, redrive serve",
	Version:    func() string { return "this tree" },
	Settings:   "the daemon over backend/sqlite, in this process; nobody consumes; a result is wanted of every message",
	Durability: "publish synced",
	Synced:     true,
	Open: func(dir string) (Queue, error) {
		q, err := openDaemon(dir)
		if err != nil {
			return nil, err
		}
		h := q.(*httpQueue)
		return &wsQueue{addr: h.addr, close: h.close}, nil
	},
}

// wsQueue speaks the protocol without a client library, so that the server is most of
// what is measured.
type wsQueue struct {
	addr  string
	bare  bool
	close func() error
}

func (q *wsQueue) Batches() {}

func (q *wsQueue) Publish(context.Context, [][]byte) error { return errUnfit }

func (q *wsQueue) Close() error { return q.close() }

// session is one connection.
type wsSession struct {
	ctx  context.Context
	conn *websocket.Conn
	seq  uint64
	tail []byte
	bare bool
}

// Session opens a connection.
func (q *wsQueue) Session(ctx context.Context) (publish func(int) error, closer func(), err error) {
	conn, _, err := websocket.Dial(ctx, "ws://"+q.addr+"/v1/ws", &websocket.DialOptions{Subprotocols: []string{"redrive.v1.json"}}) //nolint:bodyclose // the library does
	if err != nil {
		return nil, nil, err
	}
	s := &wsSession{ctx: context.WithoutCancel(ctx), conn: conn, bare: q.bare}
	s.tail = fmt.Appendf(nil, `,"queue":%q,"body":"%s"}`, queueName, bytes.Repeat([]byte{'x'}, bodySize))
	closer = func() { _ = conn.CloseNow() }
	if q.bare {
		return s.echoed, closer, nil
	}
	if err := conn.Write(s.ctx, websocket.MessageText, []byte(`{"type":"hello"}`)); err != nil {
		return nil, nil, err
	}
	if _, _, err = conn.Read(s.ctx); err != nil {
		return nil, nil, err
	}
	return s.acked, closer, nil
}

func (s *wsSession) send(n int) error {
	for range n {
		s.seq++
		f := strconv.AppendUint([]byte(`{"type":"publish","seq":`), s.seq, 10)
		if err := s.conn.Write(s.ctx, websocket.MessageText, append(f, s.tail...)); err != nil {
			return err
		}
	}
	return nil
}

// acked sends messages and waits until all of them are acknowledged.
func (s *wsSession) acked(n int) error {
	if err := s.send(n); err != nil {
		return err
	}
	for {
		_, text, err := s.conn.Read(s.ctx)
		if err != nil {
			return err
		}
		var f struct {
			Type   string
			Seq    uint64
			Errors json.RawMessage
		}
		if err := json.Unmarshal(text, &f); err != nil {
			return err
		}
		if f.Errors != nil {
			return fmt.Errorf("the server refused: %s", text)
		}
		if f.Type == "ack" && f.Seq == s.seq {
			return nil
		}
	}
}

// echoed sends frames and waits until each came back.
func (s *wsSession) echoed(n int) error {
	if err := s.send(n); err != nil {
		return err
	}
	for range n {
		if _, _, err := s.conn.Read(s.ctx); err != nil {
			return err
		}
	}
	return nil
}

// overSessions opens all connections, then runs f on each at once.
func overSessions(ctx context.Context, r *run, f func(i int, publish func(int) error) error) (time.Duration, error) {
	q, ok := r.queue.(Sessioner)
	if !ok {
		return 0, errUnfit
	}
	publishers := make([]func(int) error, sessionConns)
	for i := range publishers {
		publish, closer, err := q.Session(ctx)
		if err != nil {
			return 0, err
		}
		defer closer() //nolint:revive // all stay open
		publishers[i] = publish
	}
	if err := r.begin(); err != nil {
		return 0, err
	}
	start := time.Now()
	errs := make([]error, sessionConns)
	var wg sync.WaitGroup
	for i, publish := range publishers {
		wg.Go(func() { errs[i] = f(i, publish) })
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return 0, err
		}
	}
	return time.Since(start), nil
}

func sessions(ctx context.Context, r *run) error {
	counts := make([]int64, sessionConns)
	end := sync.OnceValue(func() time.Time { return time.Now().Add(r.duration) })
	took, err := overSessions(ctx, r, func(i int, publish func(int) error) error {
		for end := end(); time.Now().Before(end); {
			if err := publish(sessionBatch); err != nil {
				return err
			}
			counts[i] += sessionBatch
		}
		return nil
	})
	if err != nil {
		return err
	}
	var total int64
	for _, n := range counts {
		total += n
	}
	return r.end(total, took)
}

// sessionsAtRate sends each message at its time, whatever became of the one before on
// its connection: a stall is seen in all that it delayed.
func sessionsAtRate(ctx context.Context, r *run) error {
	interval := time.Second * sessionConns / sessionRate
	n := int(r.duration / interval)
	took := make([][]time.Duration, sessionConns)
	elapsed, err := overSessions(ctx, r, func(i int, publish func(int) error) error {
		begin := time.Now().Add(interval * time.Duration(i) / sessionConns)
		for k := range n {
			at := begin.Add(time.Duration(k) * interval)
			time.Sleep(time.Until(at)) //nolint:forbidigo // the workload is a rate
			if err := publish(1); err != nil {
				return err
			}
			took[i] = append(took[i], time.Since(at))
		}
		return nil
	})
	if err != nil {
		return err
	}
	var all []time.Duration
	for _, t := range took {
		all = append(all, t...)
	}
	r.result.P50, r.result.P99 = quantile(all, 0.5), quantile(all, 0.99)
	return r.end(int64(len(all)), elapsed)
}
