package guard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/guard/internal/machine"
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
	// TrendFactor compares the mean latency of a second of at least TrendCalls answers
	// with a slow average: TrendSeconds seconds in a row above that factor and above
	// TrendFloor are an outage. TrendLast compares with the second before instead,
	// which is noise at low rates. Defaults to off, 100 ms, 20 and 2.
	TrendFactor  float64
	TrendFloor   time.Duration
	TrendCalls   int
	TrendSeconds int
	TrendLast    bool
}

// Exit says how a provider that is down is taken back. The zero value of a field means
// its default.
type Exit struct {
	// After takes it back after a fixed time, all at once. Defaults to 0: by probes.
	After time.Duration
	// Hold is how long it is left alone; it doubles with each failed probe up to
	// MaxHold. Defaults to 1 s and 4 s, give or take a fifth.
	Hold    time.Duration
	MaxHold time.Duration
	// Canaries is how many probes in a row must succeed. Defaults to 2.
	Canaries int
	// Start is the share of live calls that then goes through. It grows by Factor with
	// each step of at least Step and StepCalls calls, unless more than MaxBad of them
	// fail; then it shrinks. MinRate calls a second always go through. Defaults to
	// 0.05, 2, 500 ms, 5, 0.1 and 2.
	Start     float64
	Factor    float64
	MinRate   float64
	Step      time.Duration
	StepCalls int
	MaxBad    float64
}

// Pace says how fast the backlog is worked off, and how a rate cap moves. The zero
// value of a field means its default.
type Pace struct {
	// MaxShare bounds the backlog's rate in units of the usual live rate, and what both
	// may come to in any second. Higher is over sooner and harder on the provider.
	// Defaults to 0.6.
	MaxShare float64
	// Reserve is the backlog's part of a rate cap, and of a Provider.MaxRate that live
	// calls alone use up. Defaults to 0.2.
	Reserve float64
	// Start is the backlog's rate at first, in calls a second; it doubles with each
	// good second. Defaults to 1.
	Start float64
	// MaxRate bounds it where no live call was ever seen. Defaults to 50.
	MaxRate float64
	// Fixed works the backlog off at so many calls a second instead, whatever the live
	// traffic; at a share of it while the provider recovers, and at most at Reserve of a
	// rate cap. Defaults to 0: it adapts.
	Fixed float64
	// Decrease is by how much a rate cap falls with each refusal. Defaults to 0.75.
	Decrease float64
}

// Provider is one way to have a request carried out.
type Provider[Req, Resp any] struct {
	// Name shows in metrics, events and messages. Required.
	Name string
	// Call carries a request out. Required.
	Call Call[Req, Resp]
	// Timeout bounds one call. Defaults to none.
	Timeout time.Duration
	// Classify is asked before the defaults. Optional.
	Classify Classifier[Resp]
	// Health replaces the guard's. Optional.
	Health *Health
	// MaxRate is the most calls a second, shared among the instances if
	// Config.Shared; Burst is how many may come at once, by default a 25th of it. Live
	// calls go first: one waits for its turn if that comes within 100 ms, or within three
	// turns and 1 s, and is else put off; the backlog gets what they leave. Only where
	// they ask for more than MaxRate it gets Pace.Reserve of it. Defaults to no limit.
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

	Health Health
	Exit   Exit
	Pace   Pace

	// Retries is how many more tries a request gets at once with the same provider,
	// within the caller's deadline and the failover budget. Defaults to none.
	Retries int
	// FailoverShare and FailoverRate bound second tries, those with another provider
	// too: a share of the calls, and in any case so many a second. Default to 0.2
	// and 10.
	FailoverShare float64
	FailoverRate  float64

	// Queue is where requests wait. Defaults to Name.
	Queue string
	// Store keeps them, their dead letters, their results and the guard's state. With
	// neither Store nor Sink nothing is put off.
	Store driver.Store
	// Sink takes the requests instead of Store, such as a broker. Without a Store
	// beside it tickets cannot be polled, and uncertain requests are not kept.
	Sink redrive.Sink
	// Source hands out what Sink took, if that does not end up in Store:
	// [Guard.QueueOptions] names it. What waits there is known to the ticket that Do
	// returned, not to one by [Guard.Ticket]; keys that wait there since before this
	// process are not known. Optional.
	Source driver.Source
	// Deferral says how a request may be put off. Defaults to the zero Deferral.
	Deferral func(req Req) Deferral
	// QueueTimeout bounds the publishing, whose time is not the caller's. Defaults to
	// 5 s.
	QueueTimeout time.Duration
	// KeepResults is how long the results of put-off requests can be fetched.
	// Defaults to 1 h; negative: not at all. One that is larger than a record is not
	// kept; use Deferral.ReplyTo.
	KeepResults time.Duration
	// Requests and Responses are the bodies. Default to JSON.
	Requests  Codec[Req]
	Responses Codec[Resp]

	// Tokens are those of calling teams; see [Guard.Caller].
	Tokens []Token
	// Shared lets the instances of a store share states, limits and probes. Without it
	// each decides for itself, and only keeps its state over a restart.
	Shared bool
	// Instance names this process. Defaults to a new id.
	Instance string

	// OnEvent is told of every change of state and every request that is put off. It
	// must be fast and safe for concurrent use. Optional.
	OnEvent func(Event)
	// Logger gets a line for each change of state. Defaults to discarding.
	Logger *slog.Logger
}

const maxProviders = 16

// check reports a configuration that makes no sense, and fills in defaults.
func (c *Config[Req, Resp]) check() error {
	if c.Name == "" {
		return errors.New("a guard needs a name")
	}
	if n := len(c.Providers); n == 0 || n > maxProviders {
		return fmt.Errorf("guard %s: it needs 1 to %d providers and has %d", c.Name, maxProviders, n)
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
		return fmt.Errorf("guard %s: a source needs a sink that it hands out, and a store beside it", c.Name)
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
	if c.FailoverShare == 0 {
		c.FailoverShare = 0.2
	}
	if c.FailoverRate == 0 {
		c.FailoverRate = 10
	}
	if c.QueueTimeout <= 0 {
		c.QueueTimeout = 5 * time.Second
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
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.OnEvent == nil {
		c.OnEvent = func(Event) {}
	}
}

// machineConfig is what a provider's machine runs under.
func machineConfig(h Health, x Exit, p Pace, maxInUse int, shared bool) machine.Config {
	return machine.Config{Health: machine.Health(h), Exit: machine.Exit(x), Pace: machine.Pace(p), MaxInUse: maxInUse, Shared: shared}
}
