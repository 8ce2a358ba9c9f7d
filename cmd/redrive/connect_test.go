package main

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/backend/memory"
	"github.com/redrive/redrive/engine"
	"github.com/redrive/redrive/internal/daemon"
	"github.com/redrive/redrive/internal/daemon/gateway/ws"
	"github.com/redrive/redrive/internal/problem"
)

// withSessions adds what only the daemon has to the API over the store.
func (b *bench) withSessions() {
	b.t.Helper()
	store := memory.New()
	gateway := ws.New(store, ws.Options{AllowQueue: func(q string) error {
		if q == "none" {
			return problem.New(http.StatusNotFound, "queue-not-found", "Queue not found", q, "")
		}
		return nil
	}})
	eng := engine.New(store, engine.Options{Observer: gateway})
	err := eng.Handle("sms", redrive.HandlerFunc(func(ctx context.Context, d *redrive.Delivery) error {
		redrive.Reply(ctx, append([]byte("echo \x1b "), d.Body...), nil)
		return nil
	}), engine.QueueOptions{})
	if err != nil {
		b.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- eng.Run(ctx) }()
	local := daemon.Local(store, nil, slog.Default())
	mux := http.NewServeMux()
	mux.HandleFunc("/v1/ws", func(w http.ResponseWriter, r *http.Request) { gateway.Serve(w, r, ws.Caller{Name: "local"}) })
	mux.Handle("/", local)
	s := httptest.NewServer(mux)
	b.url = s.URL
	b.t.Cleanup(func() {
		_ = gateway.Drain(ctx)
		s.Close()
		local.Close()
		cancel()
		if err := <-ended; err != nil {
			b.t.Error(err)
		}
		if err := store.Close(); err != nil {
			b.t.Error(err)
		}
	})
}

func TestConnect(t *testing.T) {
	b := newBench(t)
	b.expect(exitFailed, "This needs the daemon", "connect", "sms")
	b.withSessions()
	b.types = "one\n\n{\"two\":2}\n"
	out := b.expect(exitOK, "2 sent, 0 refused, 2 results", "connect", "sms")
	if !strings.Contains(out, `#1 done  echo \x1b one`) || !strings.Contains(out, `#2 done`) || strings.Contains(out, "\x1b") {
		t.Errorf("%q", out)
	}
	out = b.expect(exitOK, `"outcome":"done"`, "connect", "sms", "--json")
	if strings.Count(out, "\n") != 2 {
		t.Errorf("%s", out)
	}
	b.expect(exitOK, "0 results", "connect", "sms", "--mute")
	b.expect(exitFailed, "Queue not found", "connect", "none")
	b.expect(exitOK, "no sessions", "sessions")

	file := filepath.Join(t.TempDir(), "session.json")
	b.expect(exitOK, "2 results", "connect", "sms", "--session", file)
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info, err)
	}
	b.expect(exitOK, "away", "sessions")
	b.expect(exitOK, "2 results", "connect", "sms", "--session", file)
	if out := b.expect(exitOK, `"seq": 4`, "sessions", "--json"); !strings.Contains(out, `"epoch": 2`) {
		t.Errorf("%s", out)
	}
}
