package guard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// Health says by which signs a provider is taken for sick. The zero value of a field
// means its default, a negative number switches a rule off.
type Health struct {
	// ErrorRate is the share of failures of at least MinCalls calls, in the newest
	// fifth of Window or in all of it. Defaults to 0.5 of 20 calls in 10 s.
	ErrorRate float64
	MinCalls  int
	Window    time.Duration
	// Consecutive failures in a row serve low rates; from 5 times MinCalls in the
	// newest fifth of Window on it takes half as many more. Defaults to 8.
	Consecutive int
	// NetworkErrors is how many network errors more than answers there may be; 1 takes
	// the first one for an outage, though one on an idle connection is normal.
	// Defaults to 5.
	NetworkErrors int
	// SlowAfter is when a call is slow; SlowRun slow answers in a row, or so many calls
	// in flight for longer, are an outage. Set it well above what is usual. Defaults to
	// off, and 10.
	SlowAfter time.Duration
	SlowRun   int
	// TrendFactor compares the mean latency of a second of at least 20 answers with a
	// slow average: 2 seconds in a row above that factor, and above 100 ms, are an outage.
	// TrendLast compares with the second before instead, and one second is an outage,
	// which is noise at low rates. Defaults to off.
	TrendFactor float64
	TrendLast   bool
}

// Exit says how a provider that is down is taken back. The zero value of a field means
// its default.
type Exit struct {
	// After takes it back after a fixed time, all at once. Defaults to 0: by probes, the
	// first after 1 s, then after twice as long up to 4 s, give or take a fifth; two in a
	// row must succeed. A preset may say otherwise.
	After time.Duration
	// Start is the share of live calls that goes through once the probes have succeeded.
	// It doubles with each step of 500 ms and 5 calls, unless more than a tenth of them
	// fail; then it shrinks. 2 calls a second always go through. Defaults to 0.05.
	Start float64
}

// Pace says how fast the backlog is worked off.
type Pace struct {
	// Fixed works the backlog off at so many calls a second, whatever the live traffic; at
	// a share of it while the provider recovers, and at most at a fifth of a rate cap.
	// Defaults to 0: it begins with 1 call a second and doubles with each good second, up
	// to 0.6 of the usual live rate (a preset may say otherwise), or to 50 where no live
	// call was ever seen.
	Fixed float64
}

// Provider is one way to have a request carried out.
type Provider[Req, Resp any] struct {
	// Name shows in metrics, events and messages. Required.
	Name string
	// Call carries a request out. Required.
	Call Call[Req, Resp]
	// Timeout bounds one call, which then runs in a goroutine of its own. A call that does
	// not return 20 ms after its context has ended counts as the provider's failure, its effect is
	// unknown, and its caller goes on; it is in flight, and a part of MaxInUse, until it
	// returns. A panic of the call goes on in the caller as a [*redrive.PanicError], or to the log if
	// the caller has left. Defaults to none: a call that hangs holds its caller.
	Timeout time.Duration
	// Classify is asked before the defaults. Optional.
	Classify Classifier[Resp]
	// Health replaces the guard's. Optional.
	Health *Health
	// MaxRate is the most calls a second, shared among the instances if
	// Config.Shared; Burst is how many may come at once, by default a 25th of it. Live
	// calls go first: one waits for its turn if that comes within 100 ms, or within three
	// turns and 1 s, and is else put off; the backlog gets what they leave. Only where
	// they ask for more than MaxRate it gets a fifth of it. Defaults to no limit.
	MaxRate float64
	Burst   int
	// MaxInUse bounds the calls in flight. Defaults to no limit.
	MaxInUse int
	// Weight is its part of the calls with ByWeight. Defaults to 1.
	Weight int
}

// Order is the order in which providers are tried.
type Order uint8

// The orders. The sick are skipped in each.
const (
	InOrder  Order = iota // as they are listed
	ByWeight              // by chance, weighted
	ByHealth              // the one first that lets the largest share through, then as listed
)

// Codec turns a value into a message's body and back.
type Codec[T any] interface {
	Encode(v T) ([]byte, error)
	Decode(b []byte) (T, error)
}

// JSON is the default Codec.
type JSON[T any] struct{}

// Encode implements Codec.
func (JSON[T]) Encode(v T) ([]byte, error) { return json.Marshal(v) }

// Decode implements Codec.
func (JSON[T]) Decode(b []byte) (v T, err error) {
	err = json.Unmarshal(b, &v)
	return v, err
}

// Config is what a [Guard] is made of.
type Config[Req, Resp any] struct {
	// Name names the guard and, unless Queue is set, its queue. Required.
	Name string
	// Providers are tried in this order, or in another by Order or Pick. Required.
	Providers []Provider[Req, Resp]
	Order     Order
	// Pick chooses the providers of one request by name, in order. Optional.
	Pick func(ctx context.Context, req Req) []string

	// Preset is "sms", "webhook" or "payment": rules that suit a kind of provider. What is
	// set below replaces its own. Defaults to rules that suit any other HTTP API.
	//
	//   - sms: many short calls; a call is slow after a second.
	//   - webhook: receivers of all kinds; a call is slow after three seconds, one
	//     that is down gets no calls for longer, and gets its backlog back more gently.
	//   - payment: few calls that matter; it is slow after five seconds, trips after
	//     five failures in a row, and comes back in smaller steps.
	Preset string
	Health Health
	Exit   Exit
	Pace   Pace

	// Retries is how many more tries a request gets at once with the same provider,
	// within the caller's deadline and the failover budget. Defaults to none.
	Retries int
	// Failover bounds second tries, those with another provider too: a share of the
	// calls, and in any case 10 a second. Defaults to 0.2.
	Failover float64

	// Queue is where requests wait. Defaults to Name.
	Queue string
	// Store keeps them, their dead letters, their results and the guard's state. With
	// neither Store nor Sink nothing is put off.
	Store driver.Store
	// Sink takes the requests instead of Store, such as a broker. Without a Store
	// beside it tickets cannot be polled, and uncertain requests are not kept.
	Sink redrive.Sink
	// Source delivers what Sink took, if that does not end up in Store:
	// [Guard.QueueOptions] names it. What waits there is known to the ticket that Do
	// returned, not to one by [Guard.Ticket]; keys that wait there since before this
	// process are not known. Optional.
	Source driver.Source
	// Deferral says how a request may be put off. Defaults to the zero Deferral.
	Deferral func(req Req) Deferral
	// KeepResults is how long the results of put-off requests can be fetched.
	// Defaults to 1 h; negative: not at all. One that is larger than a record is not
	// kept; use Deferral.ReplyTo.
	KeepResults time.Duration
	// Requests and Responses are the bodies. Default to JSON.
	Requests  Codec[Req]
	Responses Codec[Resp]

	// Shared lets the instances of a store share states, limits and probes. Without it
	// each decides for itself, and only keeps its state over a restart.
	Shared bool
	// Instance names this process. Defaults to a new id.
	Instance string

	// OnEvent receives every change of state and every request that is put off. It
	// must be fast and safe for concurrent use. Optional.
	OnEvent func(Event)
	// Logger gets a line for each change of state. Defaults to [slog.Default].
	Logger *slog.Logger
}

const (
	maxProviders = 16
	queueTimeout = 5 * time.Second // of the publishing, whose time is not the caller's
)

// check reports a configuration that makes no sense, and fills in defaults.
func (c *Config[Req, Resp]) check() error {
	if c.Name == "" {
		return errors.New("a guard needs a name")
	}
	if n := len(c.Providers); n == 0 || n > maxProviders {
		return fmt.Errorf("guard %s: it needs 1 to %d providers and has %d", c.Name, maxProviders, n)
	}
	if _, ok := presets[c.Preset]; !ok {
		return fmt.Errorf("guard %s: there is no preset %q: use %s", c.Name, c.Preset, strings.Join(Presets(), ", "))
	}
	seen := make(map[string]bool)
	for i := range c.Providers {
		p := &c.Providers[i]
		if p.Name == "" || p.Call == nil || seen[p.Name] {
			return fmt.Errorf("guard %s: provider %d needs a name of its own and a call", c.Name, i+1)
		}
		if p.MaxRate < 0 || p.MaxInUse < 0 || p.Timeout < 0 || p.Weight < 0 || p.Burst < 0 {
			return fmt.Errorf("guard %s: provider %s: limits are zero (none) or more", c.Name, p.Name)
		}
		seen[p.Name] = true
	}
	if c.Queue == "" {
		c.Queue = c.Name
	}
	if c.Source != nil && (c.Sink == nil || c.Store == nil) {
		return fmt.Errorf("guard %s: a source needs a sink whose messages it delivers, and a store beside it", c.Name)
	}
	if c.Sink == nil && c.Store != nil {
		c.Sink = c.Store
	}
	if c.Sink != nil {
		if err := driver.CheckQueue(c.Queue); err != nil {
			return fmt.Errorf("guard %s: %w", c.Name, err)
		}
	}
	if c.Shared && c.Store == nil {
		return fmt.Errorf("guard %s: sharing needs a store", c.Name)
	}
	c.defaults()
	return nil
}

func (c *Config[Req, Resp]) defaults() {
	if c.Failover == 0 {
		c.Failover = 0.2
	}
	if c.KeepResults == 0 {
		c.KeepResults = time.Hour
	}
	if c.Requests == nil {
		c.Requests = JSON[Req]{}
	}
	if c.Responses == nil {
		c.Responses = JSON[Resp]{}
	}
	if c.Instance == "" {
		c.Instance = redrive.NewID()
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.OnEvent == nil {
		c.OnEvent = func(Event) {}
	}
}
