package redisconn

import (
	"context"
	"crypto/sha1" //nolint:gosec // the name by which EVALSHA knows a script
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redrive/redrive"
)

// Script is a Lua script. Its source may have parts that other scripts share.
type Script struct {
	name           string
	plain, flagged source // without and with the flags of Redis 7
	newer          source // where the server has the command
	command        string // "": there is no newer way
}

// source is the text of a script and the name by which the server knows it.
type source struct{ text, sha string }

// NewScript makes a script that writes, of its parts, one after the other. AllowOOM lets
// it run where the server is full (from Redis 7): for scripts that give memory back. A
// server before 7 refuses the script's first command that needs memory, if nothing was
// written before it: begin with such a command.
func NewScript(name string, allowOOM bool, parts ...string) *Script {
	if allowOOM {
		return newScript(name, "#!lua flags=allow-oom\n", parts)
	}
	return newScript(name, "#!lua\n", parts)
}

// NewReader makes a script that writes nothing, of its parts.
func NewReader(name string, parts ...string) *Script {
	return newScript(name, "#!lua flags=no-writes\n", parts)
}

func newScript(name, flags string, parts []string) *Script {
	src := strings.Join(parts, "\n")
	return &Script{name: name, plain: digest(src), flagged: digest(flags + src)}
}

// Using returns the script for servers with and without a newer command: its first line
// sets a local variable of the command's name to true or false. The script has to do
// without the command where a call of it fails: a cluster may have nodes of two versions, and
// a user may lack the right.
func (s *Script) Using(command string) *Script {
	set := func(from source, has string) source {
		line := "local " + command + " = " + has + "\n"
		if head, rest, ok := strings.Cut(from.text, "\n"); ok && strings.HasPrefix(head, "#!") {
			return digest(head + "\n" + line + rest)
		}
		return digest(line + from.text)
	}
	return &Script{
		name: s.name, command: command,
		plain: set(s.plain, "false"), flagged: set(s.flagged, "false"), newer: set(s.flagged, "true"),
	}
}

func digest(src string) source {
	sum := sha1.Sum([]byte(src)) //nolint:gosec // as above
	return source{src, hex.EncodeToString(sum[:])}
}

// Name returns the script's name.
func (s *Script) Name() string { return s.name }

// of returns the source of a script that fits the server.
func (c *Conn) of(s *Script) source {
	switch {
	case !c.Version.AtLeast(7, 0):
		return s.plain
	case s.command != "" && c.Has[s.command]:
		return s.newer
	}
	return s.flagged
}

// Digest is the name by which the server knows a script, for hooks that look for it.
func (c *Conn) Digest(s *Script) string { return c.of(s).sha }

// once is a command that the client sends a second time only if it is certain that the
// first did not run. The client of a cluster repeats others after a connection broke.
type once struct{ *redis.Cmd }

// NoRetry implements redis.Cmder.
func (once) NoRetry() bool { return true }

func evaluation(ctx context.Context, how, what string, keys []string, args []any) *redis.Cmd {
	all := make([]any, 0, 3+len(keys)+len(args))
	all = append(all, how, what, len(keys))
	for _, k := range keys {
		all = append(all, k)
	}
	cmd := redis.NewCmd(ctx, append(all, args...)...)
	cmd.SetFirstKeyPos(3)
	return cmd
}

func (c *Conn) eval(ctx context.Context, how, what string, keys []string, args []any) (any, error) {
	cmd := evaluation(ctx, how, what, keys, args)
	_ = c.Process(ctx, once{cmd}) // the command keeps its error
	return cmd.Result()
}

// Run runs a script that reads. All its keys are in one slot.
func (c *Conn) Run(ctx context.Context, s *Script, keys []string, args ...any) (any, error) {
	src := c.of(s)
	began := time.Now()
	var v any
	err := Repeated(ctx, func() (err error) {
		v, err = c.eval(ctx, "EVALSHA", src.sha, keys, args)
		if redis.HasErrorPrefix(err, "NOSCRIPT") {
			v, err = c.eval(ctx, "EVAL", src.text, keys, args)
		}
		return err
	})
	err = nilIsNone(err)
	c.Scripts.Observe(s.name, time.Since(began), err)
	return v, err
}

// Write runs a script that writes, and waits for the replicas if the durability asks
// for them: on the same connection, as WAIT speaks for no other.
func (c *Conn) Write(ctx context.Context, s *Script, keys []string, args ...any) (v any, err error) {
	if c.Config.Durability != Replicated {
		v, err := c.Run(ctx, s, keys, args...)
		return v, Fault(err)
	}
	src := c.of(s)
	began := time.Now()
	defer func() { c.Scripts.Observe(s.name, time.Since(began), err) }()
	var run, wait *redis.Cmd
	err = Repeated(ctx, func() error {
		node, err := c.Node(ctx, keys[0])
		if err != nil {
			return err
		}
		if err = send(ctx, node, &run, &wait, c.Config, func(p redis.Pipeliner) *redis.Cmd { return p.EvalSha(ctx, src.sha, keys, args...) }); redis.HasErrorPrefix(err, "NOSCRIPT") {
			err = send(ctx, node, &run, &wait, c.Config, func(p redis.Pipeliner) *redis.Cmd { return p.Eval(ctx, src.text, keys, args...) })
		}
		if cluster, ok := c.UniversalClient.(*redis.ClusterClient); ok && redis.HasErrorPrefix(err, "MOVED") {
			cluster.ReloadState(ctx) // a node's client does not look where the slot went
		}
		return err
	})
	if err = nilIsNone(err); err != nil {
		return nil, Fault(err)
	}
	if n, err := wait.Int(); err != nil || n < c.Config.Replicas {
		return nil, fmt.Errorf("%w: %d of %d replicas confirmed within %s", redrive.ErrUnknown, n, c.Config.Replicas, c.Config.Patience)
	}
	return run.Val(), nil
}

// send runs a command and WAIT in one pipeline, and returns the command's error.
func send(ctx context.Context, node *redis.Client, run, wait **redis.Cmd, c *Config, command func(redis.Pipeliner) *redis.Cmd) error {
	p := node.Pipeline()
	*run = command(p)
	*wait = p.Do(ctx, "WAIT", c.Replicas, c.Patience.Milliseconds())
	_, _ = p.Exec(ctx) // each command keeps its own error
	return (*run).Err()
}

// nilIsNone takes a script's nil answer for an answer.
func nilIsNone(err error) error {
	if err == redis.Nil { //nolint:errorlint // the client returns it bare
		return nil
	}
	return err
}

// RunEach runs a script that reads with several sets of keys, in one round trip.
func (c *Conn) RunEach(ctx context.Context, s *Script, keys [][]string) (_ []any, err error) {
	src := c.of(s)
	began := time.Now()
	cmds := make([]*redis.Cmd, len(keys))
	_, _ = c.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i := range keys {
			cmds[i] = p.EvalSha(ctx, src.sha, keys[i])
		}
		return nil
	})
	defer func() { c.Scripts.Observe(s.name, time.Since(began), err) }()
	values := make([]any, len(keys))
	for i, cmd := range cmds {
		v, err := cmd.Result()
		if redis.HasErrorPrefix(err, "NOSCRIPT") || passing(err) {
			v, err = c.Run(ctx, s, keys[i])
		}
		if err != nil {
			return nil, err
		}
		values[i] = v
	}
	return values, nil
}
