package rabbitmq

import (
	"crypto/x509"
	"errors"
	"strings"
	"testing"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/internal/broker"
	"github.com/redrive/redrive/internal/rabbittest"
)

// TestTLS speaks TLS with a node whose certificate an authority of its own signed.
func TestTLS(t *testing.T) {
	node, name := rabbittest.Shared(t), rabbittest.Name()
	secure := func(host string, more ...string) string {
		return strings.Replace(at(host, append([]string{"queue=" + name, "declare=true"}, more...)...), "rabbitmq://", "rabbitmqs://", 1)
	}
	s := connect(t, secure(node.AddrTLS(), "tls_ca="+node.Authority()), Options{})
	publish(t, s, redrive.Message{ID: "m"})
	if d := claim(t, s, redrive.LaneFresh, 1); settle(s, settled(&d[0], redrive.OutcomeDone)) != nil {
		t.Error("not settled")
	}
	_, err := Open(t.Context(), secure(node.AddrTLS()), Options{})
	if _, unknown := errors.AsType[x509.UnknownAuthorityError](err); !unknown || !strings.Contains(err.Error(), "tls_ca") {
		t.Error("an authority that nobody trusts:", err)
	}
	if _, err := Open(t.Context(), secure(node.Addr(), "tls_ca="+node.Authority()), Options{}); err == nil {
		t.Error("TLS where none is spoken")
	}
	other := strings.Replace(node.AddrTLS(), "127.0.0.1", "127.0.0.2", 1) // not in the certificate, nor listened on
	connect(t, secure(other+","+node.AddrTLS(), "tls_ca="+node.Authority()), Options{})
	if _, err := Open(t.Context(), secure(node.AddrTLS(), "tls_ca="+node.Addr()), Options{}); err == nil {
		t.Error("a file that is not there")
	}
	// What attaches dead letters, and publishes to a broker, connects the same way.
	for ca, works := range map[string]bool{"&tls_ca=" + node.Authority(): true, "": false} {
		a, err := broker.Parse("rabbitmqs://guest:guest@" + node.AddrTLS() + "/?queue=" + name + ca)
		if err != nil {
			t.Fatal(err)
		}
		c, err := a.DialRabbitMQ(t.Context())
		if works != (err == nil) || a.Rest() != nil {
			t.Errorf("with %q: %v, %v", ca, err, a.Rest())
		}
		if err == nil {
			_ = c.Close()
		}
	}
}
