package kafka

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/kafkatest"
)

// securely connects in each of the ways in which an address says who connects.
func securely(t *testing.T, c *cluster, at *kafkatest.Secured) {
	login := at.User + ":" + at.Password + "@"
	open := func(scheme, login, host, topic, more string) (*Source, error) {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		return Open(ctx, scheme+"://"+login+host+"/"+topic+"?group="+topic+more, Options{})
	}
	ca := "&tls_ca=" + at.CA
	for name, way := range map[string]struct{ scheme, host, more string }{
		"the default":   {"kafka", at.Plain, ""},
		"scram-sha-256": {"kafka", at.Plain, "&sasl=scram-sha-256"},
		"plain":         {"kafka", at.Plain, "&sasl=plain"},
		"with TLS":      {"kafkas", at.TLS, ca},
		"plain and TLS": {"kafkas", at.TLS, "&sasl=plain&tls_server_name=localhost" + ca},
	} {
		address := c.topic(t, 1)
		to, err := parse(address)
		if err != nil {
			t.Fatal(err)
		}
		s, err := open(way.scheme, login, way.host, to.topic, way.more)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		publishN(t, s, 3)
		if err := driver.FirstError(s.Settle(t.Context(), done(claimN(t, s, 3)...))); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := s.Close(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	topic := "secured-refused"
	for name, bad := range map[string]struct{ scheme, login, host, more string }{
		"a wrong password":     {"kafka", at.User + ":wrong-" + at.Password + "@", at.Plain, ""},
		"an unknown authority": {"kafkas", login, at.TLS, ""},
		"no password":          {"kafka", at.User + "@", at.Plain, ""},
		"sasl of nobody":       {"kafka", "", at.Plain, "&sasl=plain"},
		"an unknown mechanism": {"kafka", login, at.Plain, "&sasl=gssapi"},
		"tls_ca without TLS":   {"kafka", login, at.Plain, ca},
	} {
		s, err := open(bad.scheme, bad.login, bad.host, topic, bad.more)
		var e *redrive.Error
		if !errors.As(err, &e) || strings.Contains(err.Error(), at.Password) || strings.Contains(e.Hint, at.Password) {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil {
			_ = s.Close()
		}
	}
}
