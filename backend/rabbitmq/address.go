package rabbitmq

import (
	"crypto/tls"
	"fmt"
	"net/url"
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
	err = addr.Parameters(q, map[string]addr.Parameter{
		"queue": addr.Text(&a.queue), "type": addr.OneOf(&a.kind, "quorum", "classic"), "declare": addr.Switch(&a.declare),
		"exchange": addr.Text(&a.exchange), "key": addr.Text(&a.key), "prefetch": addr.Number(&a.prefetch, 1, 65535),
		"dead": addr.OneOf(&a.dead, DeadConfirm, DeadTx, DeadDLX), "dead_queue": addr.Text(&a.deadQueue),
	})
	if err != nil {
		return address{}, fmt.Errorf("%w: %w", errAddress, err)
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

// plain is how the client logs in.
func (a *address) plain() []amqp.Authentication {
	return []amqp.Authentication{&amqp.PlainAuth{Username: a.user, Password: a.password}}
}
