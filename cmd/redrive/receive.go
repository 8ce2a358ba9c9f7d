package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/redrive/redrive/delivery/receiver"
	"github.com/redrive/redrive/internal/daemon/config"
)

// receiveCmd is an HTTP target to try deliveries with.
type receiveCmd struct {
	Listen string          `default:"127.0.0.1:9000" placeholder:"ADDRESS" help:"Address to listen on (default 127.0.0.1:9000)."`
	Fail   config.Percent  `placeholder:"SHARE" help:"Share of the requests to fail, such as 20%."`
	Sticky bool            `help:"Fail the same messages each time, not others."`
	Status int             `default:"500" placeholder:"CODE" help:"HTTP status of a failure (default 500)."`
	Delay  config.Duration `placeholder:"TIME" help:"How long each answer takes."`
	Secret string          `env:"REDRIVE_RECEIVE_SECRET" placeholder:"SECRET" help:"Check signatures with this secret (whsec_... or env:NAME)."`
	Seed   uint64          `placeholder:"N" help:"Choose other messages to fail."`
	Quiet  bool            `short:"q" help:"Print only the summary at the end."`
}

func (*receiveCmd) Help() string {
	return examples(
		"redrive receive", "accept everything on port 9000",
		"redrive receive --fail 20% --sticky", "fail one message in five, the same ones each time",
		"curl -X POST localhost:9000/__heal", "let it accept everything from now on",
		"curl localhost:9000/__stats", "what it received so far",
	)
}

// Run receives until it is interrupted.
func (c *receiveCmd) Run(ctx context.Context, t *terminal) error {
	secret, err := config.NewSecret(c.Secret).Resolve()
	if err != nil {
		return err
	}
	r, err := receiver.New(receiver.Options{
		Fail: float64(c.Fail), Sticky: c.Sticky, Status: c.Status, Seed: c.Seed, Delay: c.Delay.Std(),
		Secret: secret, Output: c.output(t),
	})
	if err != nil {
		return usageError{err}
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", c.Listen)
	if err != nil {
		return fmt.Errorf("listen on %s: %w", c.Listen, err)
	}
	s := &http.Server{Handler: r, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: 2 * time.Minute}
	t.note("receiving on http://%s", listener.Addr())
	stopped := make(chan error, 1)
	go func() {
		<-ctx.Done()
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		stopped <- s.Shutdown(end)
	}()
	if err := s.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	if err := <-stopped; err != nil {
		t.note("requests in progress were cut off: %v", err)
	}
	return c.summary(t, r.Stats())
}

func (c *receiveCmd) output(t *terminal) func(receiver.Effect) {
	switch {
	case c.Quiet:
		return nil
	case t.json:
		e := json.NewEncoder(t.out)
		return func(v receiver.Effect) { _ = e.Encode(v) } // whoever reads is gone, the receiver goes on
	}
	return func(v receiver.Effect) {
		colour, what := good, "ok"
		if v.Status != http.StatusOK {
			colour, what = bad, clean(v.Error)
		}
		t.printf("%s  %s  %s  attempt %d  %s  %s  %s\n", v.Time.Format("15:04:05.000"), t.paint(colour, strconv.Itoa(v.Status)),
			clean(v.ID), v.Attempt, clean(v.Kind), bytesText(int64(v.Bytes)), what)
	}
}

func (c *receiveCmd) summary(t *terminal, s receiver.Stats) error {
	if t.json {
		return t.writeJSON(s)
	}
	_, err := fmt.Fprintf(t.err, "%s requests: %s accepted, %s failed, %s refused; %s of %s messages delivered, %s repeated\n",
		grouped(s.Requests), grouped(s.Accepted), grouped(s.Failed), grouped(s.Refused), grouped(s.Delivered), grouped(s.Messages), grouped(s.Repeated))
	return err
}
