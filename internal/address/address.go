// Package address is what addresses of servers have in common: lists of hosts, and files
// of certificates.
package address

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
)

// Hosts splits "host:1,host" and gives those without a port the default one, ":9092".
func Hosts(list, port string) []string {
	hosts := strings.Split(list, ",")
	for i, host := range hosts {
		if !strings.Contains(host[strings.LastIndex(host, "]")+1:], ":") {
			hosts[i] += port
		}
	}
	return hosts
}

// TLS names what a connection with TLS needs beyond the system's authorities.
type TLS struct {
	CA, Cert, Key string // PEM files; "": none
	ServerName    string // "": that of the host
}

// TakeTLS takes the parameters tls_ca, tls_cert, tls_key and tls_server_name.
func TakeTLS(q url.Values) TLS {
	return TLS{Take(q, "tls_ca"), Take(q, "tls_cert"), Take(q, "tls_key"), Take(q, "tls_server_name")}
}

// Take returns a parameter and removes it.
func Take(q url.Values, name string) string {
	v := q.Get(name)
	q.Del(name)
	return v
}

// Apply reads the files into a configuration.
func (f TLS) Apply(c *tls.Config) error {
	c.ServerName = f.ServerName
	if f.CA != "" {
		pem, err := os.ReadFile(f.CA)
		if err != nil {
			return fmt.Errorf("tls_ca: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return errors.New("tls_ca holds no certificate: name a PEM file")
		}
	}
	if f.Cert+f.Key != "" {
		pair, err := tls.LoadX509KeyPair(f.Cert, f.Key)
		if err != nil {
			return fmt.Errorf("tls_cert and tls_key: %w", err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return nil
}
