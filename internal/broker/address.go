// Package broker is what reading dead letters from a broker and publishing messages to
// one share: addresses, connections, and the form that messages of others have.
package broker

import (
	"fmt"
	"net/url"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/internal/address"
	"github.com/redrive/redrive/internal/kafkaconn"
	"github.com/redrive/redrive/internal/native"
	"github.com/redrive/redrive/internal/redisconn"
)

// Kind is a kind of broker.
type Kind uint8

// The kinds.
const (
	Kafka Kind = iota + 1
	RabbitMQ
	JetStream
	Redis
)

// Schemes are those of addresses.
var Schemes = []string{"kafka", "kafkas", "amqp", "amqps", "rabbitmq", "rabbitmqs", "nats", "natss", "redis", "rediss"}

// Address is where a broker is, and a place in it.
type Address struct {
	Kind   Kind
	Hosts  []string
	Secure bool
	User   *url.Userinfo
	Vhost  string      // RabbitMQ
	Files  address.TLS // RabbitMQ with TLS
	Name   string      // topic, queue, stream or list; "": none is named
	List   bool        // Redis: Name is a list
	Query  url.Values  // what else is said
	redis  string
	text   string
}

// forms are how addresses are written.
var forms = map[Kind]string{
	Kafka: "kafka://host:9092/TOPIC", RabbitMQ: "rabbitmq://user@host:5672/VHOST?queue=QUEUE",
	JetStream: "nats://host:4222/STREAM", Redis: "redis://host:6379/0?stream=STREAM",
}

// Form returns how an address of the kind is written.
func (k Kind) Form() string { return forms[k] }

// String returns the broker's name.
func (k Kind) String() string { return []string{"", "kafka", "rabbitmq", "jetstream", "redis"}[k] }

// Place names the place that is one of this kind of broker, or "".
func (k Kind) Place(o *native.Original) string {
	only := native.NewOriginal()
	switch k {
	case Kafka:
		only.Topic = o.Topic
	case RabbitMQ:
		only.Queue, only.Exchange, only.RoutingKey = o.Queue, o.Exchange, o.RoutingKey
	case JetStream:
		only.Subject = o.Subject
	case Redis:
		only.Stream = o.Stream
	}
	return native.PlaceName(&only)
}

var ports = map[Kind]string{Kafka: kafkaconn.Port, JetStream: ":4222"}

// Parse reads an address: kafka://host:9092,host:9092/TOPIC (kafkas://user:password@host:9092/TOPIC),
// rabbitmq://user:password@host/VHOST?queue=QUEUE (amqp:// too; with TLS rabbitmqs:// or amqps://,
// with tls_ca=FILE and the like), nats://host:4222/STREAM (natss://), or
// redis://host:6379/0?stream=STREAM (rediss://). Its errors never show the address, which
// may hold a password.
func Parse(text string) (*Address, error) {
	scheme, _, _ := strings.Cut(text, ":")
	a := &Address{text: text}
	switch scheme {
	case "kafka", "kafkas":
		a.Kind, a.Secure = Kafka, scheme == "kafkas"
	case "amqp", "amqps", "rabbitmq", "rabbitmqs":
		a.Kind, a.Secure = RabbitMQ, strings.HasSuffix(scheme, "s")
	case "nats", "natss":
		a.Kind, a.Secure = JetStream, scheme == "natss"
	case "redis", "rediss":
		a.Kind, a.Secure = Redis, scheme == "rediss"
	default:
		return nil, &redrive.Error{Op: "open", Err: fmt.Errorf("a broker of scheme %q is not known", scheme), Hint: "write " + allForms()}
	}
	bad := &redrive.Error{Op: "open", Err: fmt.Errorf("%w address of %s", redrive.ErrInvalid, a.Kind), Hint: "write " + forms[a.Kind]}
	u, err := url.Parse(text)
	if err != nil || u.Host == "" {
		return nil, bad
	}
	a.User, a.Query = u.User, u.Query()
	a.Hosts = address.Hosts(u.Host, ports[a.Kind])
	path := strings.TrimPrefix(u.Path, "/")
	switch a.Kind {
	case Kafka, JetStream:
		a.Name = strings.Trim(path, "/")
	case RabbitMQ:
		if a.Vhost = path; u.Path == "" || u.Path == "/" {
			a.Vhost = "/"
		}
		a.Name = a.Take("queue")
		if a.Secure {
			a.Files = address.TakeTLS(a.Query)
		}
	case Redis:
		a.Name = a.Take("stream")
		if list := a.Take("list"); list != "" && a.Name == "" {
			a.Name, a.List = list, true
		}
		u.RawQuery = ""
		a.redis = u.String()
	}
	return a, nil
}

func allForms() string {
	all := make([]string, 0, len(forms))
	for k := Kafka; k <= Redis; k++ {
		all = append(all, forms[k])
	}
	return strings.Join(all, ", ")
}

// Take returns a parameter and removes it.
func (a *Address) Take(name string) string { return address.Take(a.Query, name) }

// Text returns the address as it was written, which may show a password.
func (a *Address) Text() string { return a.text }

// Rest fails if parameters are left that nobody took.
func (a *Address) Rest() error {
	for name := range a.Query {
		if a.Kind == Redis { // the rest is for the connection, which checks it
			continue
		}
		return &redrive.Error{Op: "open", Err: fmt.Errorf("%w parameter %q of the address", redrive.ErrInvalid, name), Hint: "write " + forms[a.Kind]}
	}
	return nil
}

// String returns the address for people, without user and parameters.
func (a *Address) String() string {
	text := a.Kind.String() + "://" + strings.Join(a.Hosts, ",")
	if a.Kind == RabbitMQ && a.Vhost != "/" {
		text += "/" + a.Vhost
	}
	if a.Name != "" {
		text += "/" + a.Name
	}
	return text
}

// RedisConfig returns how to connect to Redis.
func (a *Address) RedisConfig() (*redisconn.Config, error) {
	text := a.redis
	if len(a.Query) > 0 {
		text += "?" + a.Query.Encode()
	}
	return redisconn.Parse(text)
}

// KafkaOptions returns how to connect to Kafka.
func (a *Address) KafkaOptions() ([]kgo.Opt, error) {
	return kafkaconn.Options(a.Hosts, a.Secure, a.User, a.Query)
}
