package daemon

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/backend"
	"github.com/redrive/redrive/delivery"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/daemon/alerts"
	"github.com/redrive/redrive/internal/daemon/config"
)

// connectTimeout bounds how long a check waits for one server.
const connectTimeout = 10 * time.Second

// Check reports what keeps [New] from starting with a configuration that has been read, as
// [config.Errors], or nil: it builds what New builds, but opens and connects to nothing. It
// also reports what would keep messages from being delivered later: secrets that are not
// there, and targets at private addresses that nothing allows. With connect it tries the
// servers of store and sources, changing nothing there.
func Check(ctx context.Context, cfg *config.Config, connect bool) error {
	c := &preflight{ctx: ctx, connect: connect}
	c.say("", checkListen(cfg))
	_, err := newCertificates(cfg.TLS, nil)
	c.say("tls", err)
	c.store(cfg)
	if _, err := newLive(cfg); err != nil {
		c.say("", err)
	}
	for _, name := range slices.Sorted(maps.Keys(cfg.Queues)) {
		if q := cfg.Queues[name]; q != nil {
			path := "queues." + name
			c.source(path+".source", name, q)
			if q.Deliver != nil {
				c.deliver(path+".deliver", name, cfg, q)
			}
		}
	}
	alerts.Check(&cfg.Alerts, c.say)
	if len(c.found) == 0 {
		return nil
	}
	return c.found
}

// preflight collects what a check finds.
type preflight struct {
	ctx     context.Context
	connect bool
	found   config.Errors
}

func (c *preflight) say(path string, err error) {
	if err == nil {
		return
	}
	e := &config.Error{Path: path, What: err.Error()}
	var known *redrive.Error
	var value *config.ValueError
	switch {
	case errors.As(err, &known):
		e.What, e.Hint = known.Err.Error(), known.Hint
	case errors.As(err, &value):
		e.What, e.Hint = value.What, value.Hint
	}
	c.found = append(c.found, e)
}

// unopened calls a function that opens something, under a context that has ended: it reads the
// address, and goes no further.
func unopened(open func(context.Context) error) error {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := open(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

func (c *preflight) store(cfg *config.Config) {
	address, err := cfg.Store.Resolve()
	if err != nil {
		c.say("store", err)
		return
	}
	if strings.HasPrefix(address, "sqlite:") {
		return
	}
	open := func(ctx context.Context) error {
		store, err := backend.Open(ctx, address)
		if err == nil {
			err = store.Close()
		}
		return err
	}
	if err = unopened(open); err == nil && c.connect {
		err = c.reach(address)
	}
	c.say("store", err)
}

func (c *preflight) source(path, name string, q *config.Queue) {
	if q.Source == "" {
		return
	}
	address, err := q.Source.Resolve()
	if err != nil {
		c.say(path, err)
		return
	}
	err = unopened(func(ctx context.Context) error {
		src, err := backend.OpenSource(ctx, address, backend.SourceOptions{Queue: name, Native: q.DeadLetters == config.DeadLettersNative, Ordered: q.Order == "key"})
		if err == nil {
			err = src.Close()
		}
		return err
	})
	if err == nil && c.connect {
		err = c.reach(address)
	}
	c.say(path, err)
}

// defaultPorts are those of servers, by the beginning of a scheme.
var defaultPorts = map[string]string{"postgres": "5432", "mysql": "3306", "mariadb": "3306", "redis+sentinel": "26379", "rediss+sentinel": "26379", "redis": "6379",
	"kafka": "9092", "nats": "4222", "tls": "4222", "rabbitmqs": "5671", "rabbitmq": "5672"}

// reach connects to the first host of an address that answers. It says nothing to the server:
// to open a source would join its group, and to open a store may make its tables.
func (c *preflight) reach(address string) error {
	scheme, rest, _ := strings.Cut(address, "://")
	hosts := rest
	if end := strings.IndexAny(rest, "/?"); end >= 0 {
		hosts = rest[:end]
	}
	hosts = hosts[strings.LastIndexByte(hosts, '@')+1:]
	port := "0"
	longest := 0
	for prefix, p := range defaultPorts {
		if strings.HasPrefix(scheme, prefix) && len(prefix) > longest {
			port, longest = p, len(prefix)
		}
	}
	ctx, cancel := context.WithTimeout(c.ctx, connectTimeout)
	defer cancel()
	var last error
	for host := range strings.SplitSeq(hosts, ",") {
		if strings.LastIndexByte(host, ':') <= strings.LastIndexByte(host, ']') {
			host = net.JoinHostPort(strings.Trim(host, "[]"), port)
		}
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", host)
		if err == nil {
			return conn.Close()
		}
		last = err
	}
	return &redrive.Error{Op: "check", Err: fmt.Errorf("no server answers: %w", driver.Unavailable(last)), Hint: "is it running, and are host and port right?"}
}

func (c *preflight) deliver(path, name string, cfg *config.Config, q *config.Queue) {
	policies := cfg.PoliciesOf(name)
	s := &Server{cfg: cfg}
	if q.Deliver.Publish != "" {
		if h, err := s.delivererOf(q.Deliver, &policies); err != nil {
			c.say(path, err)
		} else {
			h.Close()
		}
		return
	}
	names, targets := q.Deliver.Targets()
	for i := range targets {
		at := path
		if len(q.Deliver.Endpoints) > 0 {
			at = fmt.Sprintf("%s.endpoints[%d] (%s)", path, i, names[i])
		}
		t, err := targetOf(&targets[i], &policies)
		if err == nil {
			var h *delivery.Handler
			if h, err = delivery.New(t, delivery.Options{}); err == nil {
				h.Close()
				err = delivery.Blocked(t)
			}
		}
		c.say(at, err)
		secrets := targets[i].SigningSecrets()
		for _, name := range slices.Sorted(maps.Keys(targets[i].Headers)) {
			secrets = append(secrets, targets[i].Headers[name])
		}
		for _, secret := range secrets {
			if _, err := secret.Resolve(); err != nil {
				c.say(at, err)
			}
		}
	}
}
