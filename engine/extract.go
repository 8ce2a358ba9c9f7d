package engine

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/errname"
	"github.com/redrive/redrive/internal/text"
)

// identity is what all failures of a process have in common.
type identity struct {
	host, ip, service, version, environment string
	pid                                     int
}

// newIdentity looks up, once, what the options leave open.
func newIdentity(o Options) *identity {
	id := &identity{service: o.Service, version: o.Version, environment: o.Environment, pid: os.Getpid(), ip: hostIP()}
	id.host, _ = os.Hostname()
	id.host = cmp.Or(id.host, "localhost")
	id.service = cmp.Or(id.service, filepath.Base(os.Args[0]), "unknown")
	id.version = cmp.Or(id.version, buildVersion(), "unknown")
	id.environment = cmp.Or(id.environment, "development")
	return id
}

// hostIP returns an address of this host: of the first network there is, IPv4 if it
// has both.
func hostIP() string {
	addrs, _ := net.InterfaceAddrs()
	var six string
	for _, a := range addrs {
		n, ok := a.(*net.IPNet)
		switch {
		case !ok || !n.IP.IsGlobalUnicast():
		case n.IP.To4() != nil:
			return n.IP.String()
		case six == "":
			six = n.IP.String()
		}
	}
	return cmp.Or(six, "127.0.0.1")
}

// buildVersion returns the version of the program's module, or the commit it was
// built from.
func buildVersion() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return s.Value
		}
	}
	return info.Main.Version
}

// Extractor adds to the metadata of a failure before it is settled: details of the
// error, a customer's number, the configuration in force. One that sets f.Signature says
// what the failure's cause is; otherwise that is [driver.Signature]. It must not keep f.
type Extractor interface {
	Extract(ctx context.Context, d *redrive.Delivery, err error, f *redrive.Failure)
}

// failure describes one failed attempt: what is known of the process, the
// delivery and the policy, and what the error says of itself. The extractor, if any,
// adds to it; then it is bounded and signed. The reason is left to the caller.
func (id *identity) failure(ctx context.Context, d *redrive.Delivery, err error, end time.Time, took time.Duration, stack string,
	p *redrive.Policy, target string, x Extractor) *redrive.Failure {
	text := fmt.Sprint(err) // survives an Error method that panics
	f := &redrive.Failure{
		At: end, Duration: max(took, 0), Attempt: d.Attempt,
		Types: errname.Chain(err), Message: cmp.Or(text, "an error without text"), Stack: cmp.Or(stack, errorStack(err)),
		Host: id.host, IP: id.ip, PID: id.pid, Service: id.service, Version: id.version, Env: id.environment,
		Config:  redrive.FailureConfig{Target: target, Timeout: timeoutOf(err, p), Policy: p.Name, MaxAttempts: p.MaxAttempts},
		TraceID: TraceID(&d.Message), Details: errorDetails(err),
	}
	if f.Stack == "" {
		f.Stack = "handler of " + strings.TrimSuffix(d.Queue+"/"+d.Kind, "/")
	}
	if x != nil {
		extract(ctx, x, d, err, f)
	}
	f.Clean()
	if f.Signature == "" {
		f.Signature = driver.Signature(f)
	}
	return f
}

// timeoutOf is the timeout that was in force: of what the handler called, if the error
// says so and that is shorter, else the policy's.
func timeoutOf(err error, p *redrive.Policy) time.Duration {
	var called interface{ CallTimeout() time.Duration }
	if errors.As(err, &called) {
		if t := called.CallTimeout(); t > 0 && t < p.Timeout {
			return t
		}
	}
	return p.Timeout
}

// extract calls the extractor. One that panics costs only what it would have added.
func extract(ctx context.Context, x Extractor, d *redrive.Delivery, err error, f *redrive.Failure) {
	defer func() {
		if r := recover(); r != nil {
			if f.Details == nil {
				f.Details = make(map[string]string, 1)
			}
			f.Details["extractor"] = fmt.Sprint("panic: ", r)
		}
	}()
	x.Extract(ctx, d, err, f)
}

// errorStack returns the stack that an error carries, such as that of a panic.
func errorStack(err error) string {
	var traced interface{ StackTrace() string }
	if errors.As(err, &traced) {
		return traced.StackTrace()
	}
	return ""
}

// errorDetails returns what the error tells about itself beyond its text; nil if
// nothing.
func errorDetails(err error) map[string]string {
	var details map[string]string
	var detailed redrive.DetailedError
	if errors.As(err, &detailed) {
		given := detailed.FailureDetails()
		details = make(map[string]string, len(given)+1)
		// a copy: Clean changes it
		maps.Copy(details, given)
	}
	var status redrive.StatusError
	if errors.As(err, &status) {
		if details == nil {
			details = make(map[string]string, 1)
		}
		if details[driver.DetailStatus] == "" {
			details[driver.DetailStatus] = strconv.Itoa(status.HTTPStatus())
		}
	}
	return details
}

// TraceID returns the id of the trace that a message belongs to, 32 hexadecimal
// digits: that of its traceparent header (W3C Trace Context), or else one made of its
// queue, id and generation, so that all its attempts share it.
func TraceID(m *redrive.Message) string {
	if parent, ok := m.Headers.Get("traceparent"); ok && len(parent) >= 55 && parent[2] == '-' && parent[35] == '-' {
		if id := parent[3:35]; text.IsHex(id) && strings.Trim(id, "0") != "" {
			return strings.ToLower(id)
		}
	}
	sum := sha256.Sum256([]byte("trace\x00" + m.Queue + "\x00" + m.ID + "\x00" + strconv.Itoa(m.Generation)))
	return hex.EncodeToString(sum[:16])
}
