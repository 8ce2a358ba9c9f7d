package main

import (
	"context"
	"net"
	"testing"

	"github.com/redrive/redrive/backend/memory"
	"github.com/redrive/redrive/internal/daemon"
	"github.com/redrive/redrive/internal/daemon/config"
)

// serving runs a daemon with a configuration, and returns a bench that talks to it.
func serving(t *testing.T, yaml string) *bench {
	t.Helper()
	t.Setenv("REDRIVE_TOKEN", "")
	cfg, err := config.Parse("redrive.yaml", []byte(yaml))
	if err != nil {
		t.Fatal(err)
	}
	cfg.Listen = "127.0.0.1:0"
	address, ended := make(chan net.Addr, 1), make(chan error, 1)
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		ended <- daemon.Run(ctx, cfg, daemon.Options{Store: memory.New(), Version: "v0.0.9", Started: func(a net.Addr) { address <- a }})
	}()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return &bench{t: t, url: "http://" + (<-address).String()}
}

func TestGuards(t *testing.T) {
	b := serving(t, `queues:
  sms:
    deliver: {endpoints: [{name: north, url: "https://north.example"}, {name: south, url: "https://south.example"}]}
    guard: {preset: sms}
`)
	b.expect(exitOK, "south     healthy", "guards")
	b.expect(exitOK, `"provider": "north"`, "guards", "--json")
	b.expect(exitOK, "forced (for ", "guards", "force", "isolated", "--endpoint", "north", "--for", "1h")
	b.expect(exitOK, "north     isolated", "guards", "list")
	b.expect(exitOK, "north     healthy", "guards", "force", "healthy", "--guard", "sms")
	b.expect(exitNone, "no provider", "guards", "force", "down", "--endpoint", "east")
	b.expect(exitNone, "Guard not found", "guards", "force", "down", "--guard", "mail")
	b.expect(exitUsage, "must be one of", "guards", "force", "ill")
}
