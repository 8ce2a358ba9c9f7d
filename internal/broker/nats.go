package broker

import (
	"context"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/redrive/redrive"
)

// DialJetStream connects to the first server that answers. The parameters token, creds and
// domain of the address are taken.
func (a *Address) DialJetStream(ctx context.Context) (*nats.Conn, jetstream.JetStream, error) {
	options := []nats.Option{nats.Name("redrive"), nats.Timeout(dialTimeout), nats.MaxReconnects(-1), nats.ReconnectBufSize(-1)}
	if a.User != nil {
		if password, ok := a.User.Password(); ok {
			options = append(options, nats.UserInfo(a.User.Username(), password))
		} else {
			options = append(options, nats.Token(a.User.Username()))
		}
	}
	if token := a.Query.Get("token"); token != "" {
		options = append(options, nats.Token(token))
	}
	if file := a.Query.Get("creds"); file != "" {
		options = append(options, nats.UserCredentials(file))
	}
	scheme := "nats://"
	if a.Secure {
		scheme = "tls://"
	}
	nc, err := nats.Connect(scheme+strings.Join(a.Hosts, ","+scheme), options...)
	if err != nil {
		return nil, nil, &redrive.Error{Op: "open", Err: fmt.Errorf("NATS at %s: %w", a, err), Hint: "is a server running there, and does it take the user, token or creds of the address?"}
	}
	var js jetstream.JetStream
	if domain := a.Query.Get("domain"); domain != "" {
		js, err = jetstream.NewWithDomain(nc, domain)
	} else {
		js, err = jetstream.New(nc)
	}
	if err == nil {
		_, err = js.AccountInfo(ctx)
	}
	if err != nil {
		nc.Close()
		return nil, nil, &redrive.Error{Op: "open", Err: fmt.Errorf("JetStream at %s: %w", a, err), Hint: "enable JetStream on the server and for the account"}
	}
	return nc, js, nil
}

// NATSParameters are those that connecting to NATS reads.
var NATSParameters = []string{"token", "creds", "domain"}
