package jetstream

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/internal/address"
)

// place is what an address says.
type place struct {
	servers  []string
	options  []nats.Option
	stream   string
	consumer string
	subject  string // consumed; "": all of the stream's
	publish  string // published to; "": derived
	dlq      string // stream of native dead letters
	domain   string
	ackWait  time.Duration
}

// parse reads nats://user:password@host:4222,host:4222/STREAM?consumer=NAME&... Errors
// do not show the address.
func parse(text string) (*place, error) {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" {
		return nil, fmt.Errorf("%w address of NATS", redrive.ErrInvalid)
	}
	scheme := "nats"
	switch u.Scheme {
	case "nats":
	case "natss", "tls":
		scheme = "tls"
	default:
		return nil, fmt.Errorf("%w address of NATS: scheme %q", redrive.ErrInvalid, u.Scheme)
	}
	p := &place{stream: strings.Trim(u.Path, "/"), consumer: "redrive"}
	for _, host := range address.Hosts(u.Host, ":4222") {
		p.servers = append(p.servers, scheme+"://"+host)
	}
	if user := u.User; user != nil {
		if password, ok := user.Password(); ok {
			p.options = append(p.options, nats.UserInfo(user.Username(), password))
		} else {
			p.options = append(p.options, nats.Token(user.Username()))
		}
	}
	return p, p.parameters(u.Query())
}

// parameters reads what stands behind the question mark.
func (p *place) parameters(q url.Values) error {
	var cert, key string
	option := func(of func(string) nats.Option) address.Parameter {
		return func(value string) error {
			p.options = append(p.options, of(value))
			return nil
		}
	}
	err := address.Parameters(q, map[string]address.Parameter{
		"consumer": address.Text(&p.consumer), "subject": address.Text(&p.subject), "publish": address.Text(&p.publish), "dlq": address.Text(&p.dlq),
		"domain": address.Text(&p.domain), "ack_wait": address.Duration(&p.ackWait, minAckWait), "tls_cert": address.Text(&cert), "tls_key": address.Text(&key),
		"token":  option(nats.Token),
		"creds":  option(func(file string) nats.Option { return nats.UserCredentials(file) }),
		"tls_ca": option(func(file string) nats.Option { return nats.RootCAs(file) }),
		"nkey": func(file string) error {
			o, err := nats.NkeyOptionFromSeed(file)
			p.options = append(p.options, o)
			if err != nil {
				return errors.New("it names no file with a seed")
			}
			return nil
		},
	})
	if err != nil {
		return err
	}
	switch {
	case cert != "" && key != "":
		p.options = append(p.options, nats.ClientCert(cert, key))
	case cert != "" || key != "":
		return fmt.Errorf("%w parameters: tls_cert and tls_key belong together", redrive.ErrInvalid)
	}
	p.dlq = cmp.Or(p.dlq, p.stream+"_DLQ")
	return nil
}

// checkNames reports names that cannot be those of a stream or consumer.
func (p *place) checkNames() error {
	if p.stream == "" {
		return fmt.Errorf("%w address of NATS: it names no stream", redrive.ErrInvalid)
	}
	for what, name := range map[string]string{"stream": p.stream, "consumer": p.consumer, "dlq": p.dlq} {
		if strings.ContainsAny(name, " \t\r\n.*>/\\") {
			return fmt.Errorf("%w name of a %s: %q", redrive.ErrInvalid, what, name)
		}
	}
	return nil
}

// connect connects to the first server that answers.
func (p *place) connect(ctx context.Context, more ...nats.Option) (*nats.Conn, error) {
	if ctx.Err() != nil { // the client knows no contexts
		return nil, openError(ctx.Err(), "")
	}
	timeout := connectTimeout
	if at, ok := ctx.Deadline(); ok {
		timeout = min(timeout, max(time.Until(at)/time.Duration(len(p.servers)), time.Millisecond))
	}
	options := []nats.Option{
		nats.Name("redrive"), nats.Timeout(timeout), nats.MaxReconnects(-1), nats.ReconnectWait(reconnectWait),
		nats.ReconnectJitter(reconnectWait, reconnectWait), nats.IgnoreAuthErrorAbort(),
		nats.ReconnectBufSize(-1), // what cannot be sent fails at once, and is repeated by the engine
		nats.PingInterval(pingInterval), nats.MaxPingsOutstanding(2),
	}
	options = append(append(options, p.options...), more...)
	nc, err := nats.Connect(strings.Join(p.servers, ","), options...)
	if err != nil {
		hint := "is a server running there?"
		if errors.Is(err, nats.ErrNoServers) || errors.Is(err, nats.ErrTimeout) {
			err = fmt.Errorf("%w: %w", redrive.ErrUnavailable, err)
		}
		if errors.Is(err, nats.ErrAuthorization) {
			hint = "give user:password@ in the address, or one of the parameters token, creds and nkey"
		}
		return nil, openError(err, hint)
	}
	return nc, nil
}

// Dial connects to the servers of an address as [Open] takes it, which need not name a
// stream, and returns the connection with JetStream of the address's domain. It fails if
// no server answers, or if JetStream is not enabled there.
func Dial(ctx context.Context, address string) (*nats.Conn, jetstream.JetStream, error) {
	at, err := parse(address)
	if err != nil {
		return nil, nil, openError(err, "write it as nats://host:4222")
	}
	nc, err := at.connect(ctx)
	if err != nil {
		return nil, nil, err
	}
	js, err := at.api(nc)
	if err == nil {
		_, err = js.AccountInfo(ctx)
	}
	if err != nil {
		nc.Close()
		return nil, nil, openError(err, "enable JetStream on the server and for the account")
	}
	return nc, js, nil
}

// api is JetStream of the address's domain.
func (p *place) api(nc *nats.Conn) (jetstream.JetStream, error) {
	options := []jetstream.JetStreamOpt{jetstream.WithPublishAsyncMaxPending(publishPending),
		jetstream.WithPublishAsyncTimeout(publishWait), jetstream.WithDefaultTimeout(connectTimeout)}
	if p.domain != "" {
		return jetstream.NewWithDomain(nc, p.domain, options...)
	}
	return jetstream.New(nc, options...)
}

func openError(err error, hint string) error {
	return &redrive.Error{Op: "open", Err: fmt.Errorf("source in NATS JetStream: %w", err), Hint: hint}
}
