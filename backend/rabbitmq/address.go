package rabbitmq

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/redrive/redrive"
	addr "github.com/redrive/redrive/internal/address"
)

// address is what an address of a source says.
type address struct {
	hosts          []string // host:port
	vhost          string
	user, password string
	tls            *tls.Config // nil: none

	queue     string
	kind      string // quorum or classic
	declare   bool
	exchange  string // to publish to; "" is the default exchange
	key       string
	prefetch  int
	dead      Dead
	deadQueue string
}

var errAddress = fmt.Errorf("%w address of RabbitMQ", redrive.ErrInvalid)

func parse(text string) (address, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "rabbitmq" && u.Scheme != "rabbitmqs" || u.Host == "" {
		return address{}, errAddress
	}
	a := address{user: "guest", password: "guest", kind: "quorum", prefetch: DefaultPrefetch, vhost: strings.TrimPrefix(u.Path, "/")}
	if a.vhost == "" {
		a.vhost = "/"
	}
	if u.User != nil {
		a.user = u.User.Username()
		a.password, _ = u.User.Password()
	}
	q := u.Query()
	files, port := addr.TakeTLS(q), ":5672"
	switch {
	case u.Scheme == "rabbitmqs":
		port, a.tls = ":5671", &tls.Config{MinVersion: tls.VersionTLS12}
		if err := files.Apply(a.tls); err != nil {
			return address{}, fmt.Errorf("%w: %w", errAddress, err)
		}
	case files != (addr.TLS{}):
		return address{}, fmt.Errorf("%w: tls_ parameters without TLS, which rabbitmqs:// means", errAddress)
	}
	a.hosts = addr.Hosts(u.Host, port)
	for name, values := range q {
		if err := a.parameter(name, values[0]); err != nil {
			return address{}, err
		}
	}
	if a.queue == "" {
		return address{}, fmt.Errorf("%w: it names no queue", errAddress)
	}
	if a.key == "" && a.exchange == "" {
		a.key = a.queue
	}
	if a.deadQueue == "" {
		a.deadQueue = a.queue + ".dead"
	}
	if a.dead == DeadDLX && a.kind != "quorum" {
		return address{}, fmt.Errorf("%w: dead=dlx needs a quorum queue, others lose what they dead-letter", errAddress)
	}
	return a, nil
}

func (a *address) parameter(name, value string) (err error) {
	switch name {
	case "queue":
		a.queue = value
	case "type":
		if a.kind = value; value != "quorum" && value != "classic" {
			err = errors.New("use quorum or classic")
		}
	case "declare":
		a.declare, err = strconv.ParseBool(value)
	case "exchange":
		a.exchange = value
	case "key":
		a.key = value
	case "prefetch":
		if a.prefetch, err = strconv.Atoi(value); err == nil && (a.prefetch < 1 || a.prefetch > 65535) {
			err = errors.New("use 1 to 65535")
		}
	case "dead":
		if a.dead = Dead(value); a.dead != DeadConfirm && a.dead != DeadTx && a.dead != DeadDLX {
			err = errors.New("use confirm, tx or dlx")
		}
	case "dead_queue":
		a.deadQueue = value
	default:
		err = errors.New("it is not known")
	}
	if err != nil {
		return fmt.Errorf("%w: parameter %q: %w", errAddress, name, err)
	}
	return nil
}

// plain is how the client logs in.
func (a *address) plain() []amqp.Authentication {
	return []amqp.Authentication{&amqp.PlainAuth{Username: a.user, Password: a.password}}
}
