package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"
)

// Defaults of the daemon.
const (
	DefaultListen = "127.0.0.1:7333"
	DefaultData   = "./redrive-data"
	DefaultGrace  = Duration(20 * time.Second)
)

// Where the dead letters of a queue with a source stay.
const (
	DeadLettersParked = "parked" // in the store
	DeadLettersNative = "native" // at the broker
)

// How the span of an attempt stands to that of its publish.
const (
	TraceLink  = "link"  // in a trace of its own, linked
	TraceChild = "child" // in the trace of the publish
)

// Config is the daemon's whole configuration.
type Config struct {
	// Listen is the address of the HTTP server. Defaults to 127.0.0.1:7333. An
	// address that is not loopback needs a token.
	Listen string `yaml:"listen" json:"listen"`
	// TLS of the listener. Defaults to none: plain HTTP.
	TLS TLS `yaml:"tls" json:"tls,omitzero"`
	// Store says where messages wait: "sqlite:DIR", or the address of a server. What
	// holds a password is better written as env:NAME or file:PATH. Defaults to
	// sqlite:./redrive-data.
	Store Address `yaml:"store" json:"store"`
	// AllowSharedDir allows folders of the store, the spool and the archive that other
	// users of the machine can get into. Defaults to false: they are refused unless their
	// mode is 0700. Files in them are their user's alone (0600) either way.
	AllowSharedDir bool `yaml:"allow_shared_dir" json:"allow_shared_dir,omitempty"`
	// Queues by name. The daemon takes messages only for these, and for queues that
	// hold or held some.
	Queues map[string]*Queue `yaml:"queues" json:"queues,omitempty"`
	// Policies by name, for the policy keys of queues, kinds and rules.
	Policies map[string]*Policy `yaml:"policies" json:"policies,omitempty"`
	// Limits of the whole store. Defaults to none.
	Limits Limits `yaml:"limits" json:"limits,omitzero"`
	// Archive is the folder for dead letters that are archived. Defaults to archive
	// within the folder of an SQLite store, else to ./redrive-archive.
	Archive string `yaml:"archive" json:"archive,omitempty"`
	// Retention of queues that have none of their own. Defaults to keeping dead
	// letters for ever.
	Retention Retention `yaml:"retention" json:"retention,omitzero"`
	// Mask names what is not shown of bodies and headers, in all queues.
	Mask []MaskPath `yaml:"mask" json:"mask,omitempty"`
	// MaxBody bounds the body of one message. Defaults to 16MiB, which is the most.
	MaxBody Size `yaml:"max_body" json:"max_body,omitempty"`
	// WebSocket configures the WebSocket gateway.
	WebSocket WebSocket `yaml:"websocket" json:"websocket,omitzero"`
	// Spool accepts messages while the store cannot be reached.
	Spool Spool `yaml:"spool" json:"spool,omitzero"`
	// Tokens that may use the HTTP server. Without any, everyone who reaches a
	// loopback address may.
	Tokens []Token `yaml:"tokens" json:"tokens,omitempty"`
	// Alerts say who learns of trouble. Defaults to nobody.
	Alerts Alerts `yaml:"alerts" json:"alerts,omitzero"`
	// PublicURL is where people reach the daemon through a proxy, such as
	// "https://redrive.example.com". Alerts link to it, and forms of the pages are taken from it; with
	// https the pages' cookies are for encrypted connections only. A change needs a restart. Defaults to no links.
	PublicURL string `yaml:"public_url" json:"public_url,omitempty"`
	// Backup copies an embedded store at fixed intervals.
	Backup Backup `yaml:"backup" json:"backup,omitzero"`
	// UI configures the dashboard.
	UI UI `yaml:"ui" json:"ui,omitzero"`
	// Log of the daemon.
	Log Log `yaml:"log" json:"log"`
	// Grace is how long claimed work may go on at shutdown. Defaults to 20s.
	Grace Duration `yaml:"grace" json:"grace"`
	// Service and Environment stand in every failure. They default to "redrive" and
	// "production".
	Service     string `yaml:"service" json:"service"`
	Environment string `yaml:"environment" json:"environment"`
}

// Queue is one queue.
type Queue struct {
	// Source is where messages come from, beside the store: "kafka://host:9092/topic?group=redrive",
	// "nats://host:4222/STREAM?consumer=redrive", "rabbitmq://user@host:5672/vhost?queue=name" or
	// "redislist://host:6379"; "redislist://host:6379/0?list=KEY&from=right" takes a list that
	// others push to. Empty: the store only.
	Source Address `yaml:"source" json:"source,omitempty"`
	// DeadLetters is "parked" (in the store; the default) or "native" (at the broker of the source).
	DeadLetters string `yaml:"dead_letters" json:"dead_letters,omitempty"`
	// Order is "none" (the default) or "key": with a source only if that is a Kafka topic
	// whose dead letters are parked.
	Order string `yaml:"order" json:"order,omitempty"`
	// OnDead is what a dead head of a key does to its followers with order by key:
	// "block" (the default) or "release".
	OnDead string `yaml:"on_dead" json:"on_dead,omitempty"`
	// Deliver sends the messages to an HTTP target. Without it they wait for
	// somebody else to consume them.
	Deliver *Deliver `yaml:"deliver" json:"deliver,omitempty"`
	// Guard lets callers have the target's answer at once while it is well
	// (POST /v1/call/QUEUE). Optional.
	Guard *Guard `yaml:"guard" json:"guard,omitempty"`
	// Policy of the queue: inline, or the name of one of the top-level policies.
	Policy PolicyRef `yaml:"policy" json:"policy,omitzero"`
	// Classify is asked by every policy of the queue that has no table of its own.
	Classify *Classify `yaml:"classify" json:"classify,omitempty"`
	// Kinds have policies of their own. What such a policy leaves out is taken from
	// the queue's policy.
	Kinds map[string]*Kind `yaml:"kinds" json:"kinds,omitempty"`
	// Rules choose a policy by a header, before the kind does; the first that
	// matches wins. What such a policy leaves out is taken from the queue's policy.
	Rules []Rule `yaml:"rules" json:"rules,omitempty"`
	// Limits of the queue. Defaults to none.
	Limits Limits `yaml:"limits" json:"limits,omitzero"`
	// Retention says how long dead letters are kept. Defaults to the retention of all
	// queues.
	Retention *Retention `yaml:"retention" json:"retention,omitempty"`
	// Mask names what is not shown of bodies and headers, beside that of all queues.
	Mask []MaskPath `yaml:"mask" json:"mask,omitempty"`
	// Remember is how long ids that callers chose are remembered. Defaults to 24h.
	Remember Duration `yaml:"remember" json:"remember,omitempty"`
	// Breaker holds the queue back while its target fails as a whole.
	Breaker *Breaker `yaml:"breaker" json:"breaker,omitempty"`
	// Trace is how an attempt's span stands to that of the publish: "link" (a trace of its own,
	// linked to it; the default) or "child" (in the trace of the publish).
	Trace string `yaml:"trace" json:"trace,omitempty"`
}

// Deliver is an HTTP target, or with Publish a broker.
type Deliver struct {
	// URL gets a POST a message.
	URL string `yaml:"url" json:"url,omitempty"`
	// Publish is a broker that gets the messages in its own form instead: "kafka://host:9092",
	// "rabbitmq://user@host/vhost", "nats://host:4222", "redis://host:6379/0".
	Publish Address `yaml:"publish" json:"publish,omitempty"`
	// To is where Publish publishes: a topic, a queue or "EXCHANGE/ROUTING KEY", a subject or a
	// stream; or "origin", each message's own place, which redrive attach wrote down.
	To string `yaml:"to" json:"to,omitempty"`
	// Allow are the places that "to: origin" may lead to, as any sender of a message can
	// write its headers; * stands for any characters.
	Allow []string `yaml:"allow" json:"allow,omitempty"`
	// Endpoints are several targets instead of one URL, for a guard.
	Endpoints []Endpoint `yaml:"endpoints" json:"endpoints,omitempty"`
	// Timeout of one request. Defaults to the policy's timeout.
	Timeout Duration `yaml:"timeout" json:"timeout,omitempty"`
	// Concurrency is how many requests run at once. Of kinds whose requests take longer than
	// a second, beside others, only as many as those leave. Defaults to 64.
	Concurrency int `yaml:"concurrency" json:"concurrency,omitempty"`
	// Rate is how many requests may start in a time. Defaults to no limit.
	Rate Rate `yaml:"rate" json:"rate,omitzero"`
	// Secret signs the deliveries (Standard Webhooks): "whsec_..." or "env:NAME".
	Secret Secret `yaml:"secret" json:"secret,omitzero"`
	// Secrets sign all at once, the newest first, while receivers change over.
	Secrets []Secret `yaml:"secrets" json:"secrets,omitempty"`
	// Headers are added to each request. Values may be "env:NAME" and are not shown.
	Headers map[string]Secret `yaml:"headers" json:"headers,omitempty"`
	// AllowPrivate lets the target be on a private or loopback address.
	AllowPrivate bool `yaml:"allow_private" json:"allow_private,omitempty"`
	// AllowCIDRs lets the target be in these networks only, of those that are
	// refused otherwise.
	AllowCIDRs []string `yaml:"allow_cidrs" json:"allow_cidrs,omitempty"`
	// MaxResponse is how much of a response is read. Defaults to 64KiB.
	MaxResponse Size `yaml:"max_response" json:"max_response,omitempty"`
}

// SigningSecrets returns Secret and Secrets as one list.
func (d *Deliver) SigningSecrets() []Secret {
	if d.Secret.IsZero() {
		return d.Secrets
	}
	return append([]Secret{d.Secret}, d.Secrets...)
}

// Limits bound the backlog of a queue or of the store. A zero field means no limit.
type Limits struct {
	Depth int64    `yaml:"depth" json:"depth,omitempty"` // messages
	Bytes Size     `yaml:"bytes" json:"bytes,omitempty"` // of waiting messages
	Age   Duration `yaml:"age" json:"age,omitempty"`     // of the oldest message that is due
	Soft  Percent  `yaml:"soft" json:"soft,omitempty"`   // share of the hard limit; 80%
}

// Log says what is logged.
type Log struct {
	Level  string `yaml:"level" json:"level"`   // debug, info, warn or error; info
	Format string `yaml:"format" json:"format"` // text or json; text
}

// Default returns the configuration of a daemon without a file.
func Default() *Config {
	c := &Config{}
	c.setDefaults()
	return c
}

func (c *Config) setDefaults() {
	def := func(s *string, v string) {
		if *s == "" {
			*s = v
		}
	}
	def(&c.Listen, DefaultListen)
	def(&c.Log.Level, "info")
	def(&c.Log.Format, "text")
	def(&c.Service, "redrive")
	def(&c.Environment, "production")
	if c.Store == "" {
		c.Store = "sqlite:" + DefaultData
	}
	if c.Grace == 0 {
		c.Grace = DefaultGrace
	}
	if c.Queues == nil {
		c.Queues = make(map[string]*Queue)
	}
	c.addResultQueues()
}

// maxFile bounds a configuration file, in bytes.
const maxFile = 4 << 20

// Load reads and checks a file. The error is [Errors] if the file could be read but
// is not right.
func Load(path string) (*Config, error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, Errors{{File: path, What: "there is no such file", Hint: "name it with --config FILE, or start without one: redrive serve --deliver QUEUE=URL"}}
	case err != nil:
		return nil, fmt.Errorf("read configuration: %w", err)
	case info.IsDir():
		return nil, Errors{{File: path, What: "this is a directory, not a file"}}
	}
	f, err := os.Open(path) //nolint:gosec // the operator names the file
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	defer f.Close()                                       //nolint:errcheck // it was only read
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1)) // a pipe has no size
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	return Parse(path, data)
}

// Parse reads and checks the text of a file; name stands in its errors, which are
// [Errors].
func Parse(name string, data []byte) (*Config, error) {
	if len(data) > maxFile {
		return nil, Errors{{File: name, What: fmt.Sprintf("the configuration is larger than %s", Size(maxFile))}}
	}
	d := newDecoder(name, data)
	c := &Config{}
	d.document(c)
	c.setDefaults()
	c.check(&checker{decoder: d})
	if err := d.err(); err != nil {
		return nil, err
	}
	return c, nil
}

// Check reports everything that is wrong with a configuration that was put together
// by hand, as [Errors], or nil.
func (c *Config) Check() error {
	d := newDecoder("", nil)
	c.check(&checker{decoder: d})
	return d.err()
}
