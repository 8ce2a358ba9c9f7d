// Package kafkaconn is how an address of Kafka says to connect: to which brokers, with TLS,
// as whom.
package kafkaconn

import (
	"crypto/tls"
	"fmt"
	"net/url"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/internal/address"
)

// Port is the one of brokers whose address names none.
const Port = ":9092"

// mechanisms are those in which a name and a password prove who connects.
var mechanisms = map[string]func(name, password string) sasl.Mechanism{
	"plain": func(name, password string) sasl.Mechanism {
		return plain.Auth{User: name, Pass: password}.AsMechanism()
	},
	"scram-sha-256": func(name, password string) sasl.Mechanism {
		return scram.Auth{User: name, Pass: password}.AsSha256Mechanism()
	},
	"scram-sha-512": func(name, password string) sasl.Mechanism {
		return scram.Auth{User: name, Pass: password}.AsSha512Mechanism()
	},
}

// Options returns how to connect to brokers. With TLS (kafkas://) the parameters tls_ca,
// tls_cert, tls_key and tls_server_name are taken from q; with a user the parameter sasl:
// scram-sha-512 (the default), scram-sha-256, or plain, which sends the password as it is.
// Errors show no password.
func Options(brokers []string, secure bool, user *url.Userinfo, q url.Values) ([]kgo.Opt, error) {
	o := []kgo.Opt{kgo.SeedBrokers(brokers...), kgo.ClientID("redrive")}
	files := address.TakeTLS(q)
	switch {
	case secure:
		c := &tls.Config{MinVersion: tls.VersionTLS12}
		if err := files.Apply(c); err != nil {
			return nil, fmt.Errorf("%w address of Kafka: %w", redrive.ErrInvalid, err)
		}
		o = append(o, kgo.DialTLSConfig(c))
	case files != (address.TLS{}):
		return nil, fmt.Errorf("%w address of Kafka: tls_ parameters without TLS, which kafkas:// means", redrive.ErrInvalid)
	}
	name := address.Take(q, "sasl")
	if user == nil {
		if name != "" {
			return nil, fmt.Errorf("%w address of Kafka: sasl without user:password@", redrive.ErrInvalid)
		}
		return o, nil
	}
	if name == "" {
		name = "scram-sha-512"
	}
	mechanism, ok := mechanisms[name]
	password, has := user.Password()
	if !ok || !has {
		return nil, fmt.Errorf("%w address of Kafka: a user needs a password, and sasl is plain, scram-sha-256 or scram-sha-512", redrive.ErrInvalid)
	}
	return append(o, kgo.SASL(mechanism(user.Username(), password))), nil
}
