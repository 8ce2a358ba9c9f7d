package redisconn

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/sqlstore"
)

// Conn is a pool of connections to one server, sentinel group or cluster. It is safe
// for concurrent use.
type Conn struct {
	redis.UniversalClient
	Config  *Config
	Version Version
	Has     map[string]bool   // commands of newer servers, of those in newerCommands; not changed after Dial
	Scripts sqlstore.Recorder // how scripts went, with the way there and back
}

// Version is a server's version.
type Version struct{ Major, Minor int }

// AtLeast reports whether the version is major.minor or newer.
func (v Version) AtLeast(major, minor int) bool {
	return v.Major > major || v.Major == major && v.Minor >= minor
}

// String returns "7.0".
func (v Version) String() string { return strconv.Itoa(v.Major) + "." + strconv.Itoa(v.Minor) }

// Dial connects and refuses a server that is too old.
func Dial(ctx context.Context, c *Config) (*Conn, error) {
	setLogger()
	conn := &Conn{UniversalClient: newClient(c), Config: c}
	conn.AddHook(absence{})
	info, err := conn.Info(ctx, "server").Result()
	if err == nil {
		conn.Version, err = parseVersion(info)
	}
	if err != nil {
		_ = conn.Close()
		hint := "is the server running, and do host, port, user and password of the URL fit?"
		if _, ok := errors.AsType[*redrive.Error](err); ok {
			return nil, err
		}
		return nil, &redrive.Error{Op: "open redis", Err: err, Hint: hint}
	}
	conn.learn(ctx)
	return conn, nil
}

// newerCommands are those that scripts use where the server has them; see [Script.Using].
var newerCommands = []string{"XACKDEL"}

// learn asks which newer commands there are. Not the version tells: forks count their own
// way. Who may not ask does without. In a cluster one node answers for all, which is why a
// script has to heal itself.
func (c *Conn) learn(ctx context.Context) {
	c.Has = make(map[string]bool)
	for _, name := range newerCommands {
		known, err := c.Do(ctx, "COMMAND", "INFO", name).Slice()
		c.Has[name] = err == nil && len(known) == 1 && known[0] != nil
	}
}

// newClient makes the client that the URL's scheme asks for.
func newClient(c *Config) redis.UniversalClient {
	o := c.Options
	o.ContextTimeoutEnabled = true
	switch {
	case o.MasterName != "":
		return redis.NewFailoverClient(o.Failover())
	case o.IsClusterMode:
		cluster := o.Cluster()
		cluster.MaxRedirects = 8
		return redis.NewClusterClient(cluster)
	}
	simple := o.Simple()
	if len(o.Addrs) == 1 && strings.HasPrefix(o.Addrs[0], "/") {
		simple.Network = "unix"
	}
	return redis.NewClient(simple)
}

func parseVersion(info string) (v Version, err error) {
	text := field(info, "redis_version")
	major, rest, _ := strings.Cut(text, ".")
	minor, _, _ := strings.Cut(rest, ".")
	if v.Major, err = strconv.Atoi(major); err == nil {
		v.Minor, err = strconv.Atoi(minor)
	}
	if err != nil {
		return v, fmt.Errorf("the server says version %q", text)
	}
	if !v.AtLeast(6, 2) {
		return v, &redrive.Error{Op: "open redis", Err: fmt.Errorf("%w: Redis %s", redrive.ErrUnsupported, text), Hint: "6.2 is the oldest supported"}
	}
	return v, nil
}

// field returns the value of one line "name:value" of INFO.
func field(info, name string) string {
	for line := range strings.Lines(info) {
		if v, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

// Node returns the client of the server that holds a key.
func (c *Conn) Node(ctx context.Context, key string) (*redis.Client, error) {
	switch client := c.UniversalClient.(type) {
	case *redis.ClusterClient:
		return client.MasterForKey(ctx, key)
	case *redis.Client:
		return client, nil
	}
	return nil, fmt.Errorf("%w: a client of type %T", redrive.ErrUnsupported, c.UniversalClient)
}

// MaxConns returns how many connections the pool may open; of a cluster, to each node.
func (c *Conn) MaxConns() int {
	switch client := c.UniversalClient.(type) {
	case *redis.ClusterClient:
		return client.Options().PoolSize
	case *redis.Client:
		return client.Options().PoolSize
	}
	return 0
}

// passing says that a command did not run, and that the cause passes by itself.
func passing(err error) bool {
	for _, prefix := range []string{"READONLY", "LOADING", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "MOVED", "ASK"} {
		if redis.HasErrorPrefix(err, prefix) {
			return true
		}
	}
	return notSent(err)
}

// notSent says that there was no connection, so nothing was sent.
func notSent(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "dial" || errors.Is(err, redis.ErrPoolTimeout)
}

// absence is a hook that gives the errors of a server that is away their name.
type absence struct{}

// DialHook implements redis.Hook.
func (absence) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook implements redis.Hook.
func (absence) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := away(next(ctx, cmd))
		cmd.SetErr(err)
		return err
	}
}

// ProcessPipelineHook implements redis.Hook.
func (absence) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		for _, cmd := range cmds {
			cmd.SetErr(away(cmd.Err()))
		}
		return away(err)
	}
}

// away names an error after which nothing is known but that the server is not there.
func away(err error) error {
	if err != nil && passing(err) && !errors.Is(err, redrive.ErrUnavailable) {
		return fmt.Errorf("%w: %w", redrive.ErrUnavailable, err)
	}
	return driver.Unavailable(err)
}

// Fault turns an error of the client into one of the contract: what the server
// refused was not done; a connection that died leaves the outcome unknown.
func Fault(err error) error {
	switch _, answered := errors.AsType[redis.Error](err); {
	case err == nil:
		return nil
	case errors.Is(err, redis.ErrClosed):
		return redrive.ErrClosed
	case redis.HasErrorPrefix(err, "OOM"), answered && strings.Contains(err.Error(), ": -OOM "): // of a script, before Redis 7
		return fmt.Errorf("%w: %w", redrive.ErrFull, err)
	case redis.HasErrorPrefix(err, "NOREPLICAS"):
		return &redrive.Error{Op: "write", Err: err, Hint: "min-replicas-to-write is not met: look after the replicas"}
	case passing(err):
		return away(err) // also of a node's client, which has no hook
	case answered, errors.Is(err, context.Canceled) && !errors.Is(err, redrive.ErrUnknown):
		return err
	}
	return fmt.Errorf("%w: %w", redrive.ErrUnknown, err)
}

// Repeated tries f again, for a few seconds or until ctx ends, while it fails because
// the server is just starting, failing over or moving a slot.
func Repeated(ctx context.Context, f func() error) error {
	const total = 3 * time.Second
	pause := 5 * time.Millisecond
	var spent time.Duration
	for {
		err := f()
		if err == nil || !passing(err) || spent >= total {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(pause):
		}
		spent += pause
		pause = min(2*pause, 250*time.Millisecond)
	}
}
