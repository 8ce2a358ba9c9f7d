package kafka

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// pingTimeout is how long brokers that could not be reached are asked before a publish is refused.
const pingTimeout = 2 * time.Second

// awayAfter is how long no broker has answered where a dial fails: a fetch is answered twice a second, and
// of several brokers one may be away.
const awayAfter = 2 * time.Second

// reachable knows whether a broker is: by what a source's clients dial and are answered.
type reachable struct {
	changed func() // called on a goroutine of its own when a dial fails; nil: nobody asks

	mu     sync.Mutex
	at     time.Time // of the newest answer
	failed error     // of the newest dial, if none succeeded and nothing was answered since
}

var (
	_ kgo.HookBrokerConnect = (*reachable)(nil)
	_ kgo.HookBrokerE2E     = (*reachable)(nil)
)

// OnBrokerConnect implements kgo.HookBrokerConnect.
func (r *reachable) OnBrokerConnect(_ kgo.BrokerMetadata, _ time.Duration, _ net.Conn, err error) {
	r.note(err)
}

// OnBrokerE2E implements kgo.HookBrokerE2E.
func (r *reachable) OnBrokerE2E(_ kgo.BrokerMetadata, _ int16, e kgo.BrokerE2E) {
	if e.Err() == nil {
		r.note(nil)
	}
}

func (r *reachable) note(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil && r.failed == nil && r.changed != nil {
		go r.changed() // the client calls its hooks under locks of its own
	}
	if r.failed = err; err == nil {
		r.at = time.Now()
	}
}

// wait returns when no broker can be reached any more, if that lasts: 0 now, [driver.Never] if one can.
func (r *reachable) wait() (wait time.Duration, why error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.failed == nil {
		return driver.Never, nil
	}
	return max(time.Until(r.at.Add(awayAfter)), 0), r.failed
}

// away returns why no broker can be reached, or nil: also where that is not known.
func (r *reachable) away() error {
	wait, err := r.wait()
	if wait > 0 {
		return nil
	}
	return fmt.Errorf("%w: no broker can be reached: %w", redrive.ErrUnavailable, err)
}

// check is away, but asks the brokers again before it says so: what is refused then was not sent.
func (r *reachable) check(ctx context.Context, client *kgo.Client) error {
	away := r.away()
	if away == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	if client.Ping(ctx) == nil {
		return nil
	}
	return away
}

// of makes an error of fetching, which may be nil, one that says that the server is away, where it is.
func (r *reachable) of(err error) error {
	away := r.away()
	if away == nil || err == nil {
		return cmp.Or(err, away)
	}
	return fmt.Errorf("%w: %w", away, err)
}
