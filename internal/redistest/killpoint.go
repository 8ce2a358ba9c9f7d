package redistest

import (
	"bufio"
	"context"
	"crypto/sha1" //nolint:gosec // the name of a script
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/redrive/redrive/internal/childtest"
)

// Point is a moment in the life of a process: before or after a call of a script. The zero
// value is no moment.
type Point struct {
	Script string
	Call   int // from 1
	After  bool
}

// String returns "claim 2 after", which [ParsePoint] reads.
func (p Point) String() string {
	when := "before"
	if p.After {
		when = "after"
	}
	return fmt.Sprintf("%s %d %s", p.Script, p.Call, when)
}

// ParsePoint reads the words of a point.
func ParsePoint(words []string) (p Point, err error) {
	if len(words) != 3 {
		return p, fmt.Errorf("redistest: %q is no point", words)
	}
	_, err = fmt.Sscan(words[1], &p.Call)
	p.Script, p.After = words[0], words[2] == "after"
	return p, err
}

// Killer is a hook of a client that ends this process at a point as kill -9 does. It is for
// one goroutine.
type Killer struct {
	At    Point
	Calls map[string]int // how often each script was called

	ended map[string]int    // how often it has returned
	names map[string]string // by their digests
}

// NewKiller returns a hook that kills at a point, of scripts by their digests.
func NewKiller(at Point, names map[string]string) *Killer {
	return &Killer{At: at, Calls: map[string]int{}, ended: map[string]int{}, names: names}
}

var _ redis.Hook = (*Killer)(nil)

// DialHook implements redis.Hook.
func (k *Killer) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

// ProcessHook implements redis.Hook.
func (k *Killer) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		k.before(cmd)
		err := next(ctx, cmd)
		k.after(cmd, err)
		return err
	}
}

// ProcessPipelineHook implements redis.Hook.
func (k *Killer) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			k.before(cmd)
		}
		err := next(ctx, cmds)
		for _, cmd := range cmds {
			k.after(cmd, cmd.Err())
		}
		return err
	}
}

func (k *Killer) before(cmd redis.Cmder) {
	if name := k.script(cmd); name != "" {
		k.Calls[name]++
		k.reached(Point{name, k.Calls[name], false})
	}
}

func (k *Killer) after(cmd redis.Cmder, err error) {
	name := k.script(cmd)
	if name == "" {
		return
	}
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		k.Calls[name]-- // it did not run, and is sent again in full
		return
	}
	k.ended[name]++
	k.reached(Point{name, k.ended[name], true})
}

func (k *Killer) reached(p Point) {
	if p == k.At {
		childtest.Killed()
	}
}

// Say says how often each script was called, for [Said].
func (k *Killer) Say() {
	for name, n := range k.Calls {
		fmt.Println("calls", name, n)
	}
}

// script returns the name of the script that a command calls, or nothing.
func (k *Killer) script(cmd redis.Cmder) string {
	args := cmd.Args()
	if len(args) < 2 {
		return ""
	}
	what, _ := args[1].(string)
	switch strings.ToLower(cmd.Name()) {
	case "evalsha":
		return k.names[what]
	case "eval":
		sum := sha1.Sum([]byte(what)) //nolint:gosec // the name by which the server knows a script
		return k.names[hex.EncodeToString(sum[:])]
	}
	return ""
}

// Said is what a child that was killed had said: what was acknowledged to it, and what it
// was about to do.
type Said struct {
	Killed     bool
	Accepted   map[string]bool // publishes that were acknowledged
	Publishing int             // how many more it may have published
	Ended      map[string]bool // settlements as done or dropped that were acknowledged
	Ending     map[string]bool // those it asked for
	Calls      map[string]int  // of a child that was not killed: calls by script
}

// Child runs a part until it ends or is killed.
func Child(t testing.TB, p childtest.Part, words ...string) *Said {
	t.Helper()
	cmd := p.Command(t, words...)
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	s := &Said{Accepted: map[string]bool{}, Ended: map[string]bool{}, Ending: map[string]bool{}, Calls: map[string]int{}}
	for lines := bufio.NewScanner(out); lines.Scan(); {
		s.hear(t, lines.Text())
	}
	err = cmd.Wait()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		status, _ := exit.Sys().(syscall.WaitStatus)
		s.Killed = status.Signal() == syscall.SIGKILL
	}
	if err != nil && !s.Killed {
		t.Errorf("the child: %v", err)
	}
	return s
}

func (s *Said) hear(t testing.TB, line string) {
	words := strings.Fields(line)
	if len(words) < 2 {
		t.Errorf("the child said %q", line)
		return
	}
	n := 0
	switch words[0] {
	case "publishing":
		_, _ = fmt.Sscan(words[1], &n)
		s.Publishing = n
	case "accepted":
		s.Publishing--
		s.Accepted[words[1]] = true
	case "ending":
		s.Ending[words[1]] = true
	case "ended":
		s.Ended[words[1]] = true
	case "calls":
		_, _ = fmt.Sscan(words[2], &n)
		s.Calls[words[1]] = n
	default:
		t.Errorf("the child said %q", line)
	}
}

// Account finds each message exactly once: ended by the child, claimed afterwards or
// among the dead. drained tells how often each was claimed.
func (s *Said) Account(t testing.TB, drained map[string]int, dead []string) {
	t.Helper()
	places := map[string]int{}
	for id := range s.Ended {
		places[id]++
	}
	for id, n := range drained {
		places[id] += n
	}
	for _, id := range dead {
		places[id]++
	}
	for id := range s.Accepted {
		if places[id] == 0 && !s.Ending[id] {
			t.Errorf("%s was accepted and is lost", id)
		}
	}
	unknown := 0
	for id, n := range places {
		if n > 1 {
			t.Errorf("%s is accounted for %d times: ended %v, claimed %d times", id, n, s.Ended[id], drained[id])
		}
		if !s.Accepted[id] {
			unknown++
		}
	}
	if unknown > s.Publishing {
		t.Errorf("%d messages were never accepted, %d publishes had no answer", unknown, s.Publishing)
	}
}
