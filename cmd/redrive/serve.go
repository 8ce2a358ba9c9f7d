package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"os"
	"runtime/debug"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/redrive/redrive/internal/daemon"
	"github.com/redrive/redrive/internal/daemon/config"
)

// serveCmd is the daemon.
type serveCmd struct {
	Config         string   `short:"c" type:"path" placeholder:"FILE" help:"Configuration file (YAML). Default: redrive.yaml here; else, without --data and --deliver, /etc/redrive/redrive.yaml, if there is one."`
	Data           string   `type:"store" placeholder:"DIR" help:"Where messages wait: a folder, or the address of a store on a server (default ./redrive-data)."`
	Listen         string   `placeholder:"ADDRESS" help:"Address to listen on (default 127.0.0.1:7333)."`
	AcceptLoss     bool     `help:"Start although the log of the store lacks what was synced to it: what is missing is logged and audited."`
	AllowSharedDir bool     `help:"Allow folders of messages that other users can get into (allow_shared_dir)."`
	Deliver        []string `sep:"none" placeholder:"QUEUE=URL" help:"Deliver a queue to an HTTP target; may be repeated."`
}

func (*serveCmd) Help() string {
	return examples(
		"redrive serve --deliver hooks=https://example.com/hook", "no file needed; then: redrive publish hooks '{}'",
		"redrive serve --config redrive.yaml", "with a file; check it with: redrive config check redrive.yaml",
	)
}

// collectAt lets the heap grow fivefold before it is collected: the daemon's live heap
// is a few megabytes, and a publish costs a tenth less that way.
const collectAt = 400

// collectFrom is from where on the collector works harder, in bytes: below twice what bodies
// in flight may take ([gateway.Options.MaxInFlight]), so that garbage does not multiply them.
const collectFrom = 352 << 20

// Run serves until it is interrupted.
func (c *serveCmd) Run(ctx context.Context, t *terminal) error {
	skipped := c.find()
	read := func() (*config.Config, error) {
		cfg, err := c.configuration()
		if err == nil && t.json {
			cfg.Log.Format = "json"
		}
		return cfg, err
	}
	cfg, err := read()
	if err != nil {
		return err
	}
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(collectAt)
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(collectFrom)
	}
	log := newLogger(t, cfg.Log)
	if skipped != nil {
		log.Warn("the system's configuration is left out", slog.Any("error", skipped))
	}
	if c.Config != "" {
		log.Info("configuration", slog.String("file", c.Config))
	}
	if len(cfg.Queues) == 0 {
		log.Warn("no queues configured, publishing is refused: add --deliver QUEUE=URL, or queues: in a configuration")
	}
	listeners, err := passedListeners()
	if err != nil {
		return err
	}
	return daemon.Run(ctx, cfg, daemon.Options{
		Listeners: listeners, Logger: log, Version: version(), Reload: read, Watch: c.Config, AcceptLoss: c.AcceptLoss,
		Started: func(addr net.Addr) {
			if t.errTTY && !t.json {
				scheme := "https"
				if cfg.TLS.IsZero() {
					scheme = "http"
				}
				fmt.Fprintf(t.err, "redrive %s is listening on %s://%s, its data is in %s\n", version(), scheme, addr, clean(cfg.Store.String()))
			}
			if len(cfg.Queues) == 0 && c.Config == "" && !t.json && cfg.Log.Format == "text" {
				fmt.Fprint(t.err, firstSteps(addr.String(), c.Data))
			}
		},
	})
}

// firstTarget is where the first steps have a receiver listen.
const firstTarget = "127.0.0.1:9000"

// firstSteps says what to do with a daemon that has no queue yet.
func firstSteps(address, data string) string {
	flags := ""
	if address != config.DefaultListen {
		flags += " --listen " + address
	}
	if data != "" {
		flags += " --data " + clean(data)
	}
	return "\nNothing is configured yet. Stop this (Ctrl-C), and start it with a queue and where it delivers, beside a target to try:\n" +
		"  redrive receive --listen " + firstTarget + "\n" +
		"  redrive serve" + flags + " --deliver hooks=http://" + firstTarget + "/hook\n" +
		"  curl -d '{\"hello\":\"world\"}' http://" + address + "/v1/queues/hooks/messages\n" +
		"The dashboard: http://" + address + "/ui/. The whole life of a message in ten seconds: redrive demo\n\n"
}

// Where a configuration is looked for that no flag names.
const (
	localConfig  = "redrive.yaml"
	systemConfig = "/etc/redrive/redrive.yaml"
)

// find names the configuration file, if no flag does: that of the working directory, or else
// the system's. One of the system that this user may not read is another user's, as that of
// a service is: it is left out, and the error is why.
func (c *serveCmd) find() (skipped error) {
	if c.Config != "" {
		return nil
	}
	if _, err := os.Stat(localConfig); err == nil {
		c.Config = kong.ExpandPath(localConfig)
		return nil
	}
	if c.Data != "" || len(c.Deliver) > 0 {
		return nil
	}
	f, err := os.Open(systemConfig)
	switch {
	case errors.Is(err, fs.ErrPermission):
		return err
	case err == nil:
		c.Config = systemConfig
		return f.Close()
	}
	return nil
}

// configuration puts the file and the flags together.
func (c *serveCmd) configuration() (*config.Config, error) {
	cfg := config.Default()
	if c.Config != "" {
		var err error
		if cfg, err = config.Load(c.Config); err != nil {
			return nil, err
		}
	}
	if c.Data != "" {
		cfg.Store = storeAddress(c.Data)
	}
	cfg.AllowSharedDir = cfg.AllowSharedDir || c.AllowSharedDir
	if c.Listen != "" {
		cfg.Listen = c.Listen
	}
	for _, arg := range c.Deliver {
		queue, target, ok := strings.Cut(arg, "=")
		if !ok {
			return nil, usagef("--deliver %q: write QUEUE=URL", clean(arg))
		}
		if cfg.Queues[queue] == nil {
			cfg.Queues[queue] = &config.Queue{}
		}
		q := cfg.Queues[queue]
		if q.Deliver == nil {
			q.Deliver = &config.Deliver{}
		}
		q.Deliver.URL = target
		// Who types an address in full means it.
		q.Deliver.AllowPrivate = q.Deliver.AllowPrivate || literalHost(target)
	}
	return cfg, cfg.Check()
}

// literalHost reports a URL whose host is an address, or localhost.
func literalHost(text string) bool {
	u, err := url.Parse(text)
	if err != nil {
		return false
	}
	host := u.Hostname()
	_, err = netip.ParseAddr(host)
	return err == nil || host == "localhost"
}

func newLogger(t *terminal, l config.Log) *slog.Logger {
	var level slog.Level
	_ = level.UnmarshalText([]byte(l.Level)) // the configuration's check knows the names
	o := &slog.HandlerOptions{Level: level}
	if l.Format == "json" {
		return slog.New(slog.NewJSONHandler(t.err, o))
	}
	return slog.New(slog.NewTextHandler(t.err, o))
}
