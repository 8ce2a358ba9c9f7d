package redistest

import (
	"crypto/tls"
	"crypto/x509"
	"os"
)

// tlsConfig trusts the server's own authority; nil without TLS.
func (s *Server) tlsConfig() *tls.Config {
	if !s.o.TLS {
		return nil
	}
	pool := x509.NewCertPool()
	if ca, err := os.ReadFile(s.CAFile()); err == nil {
		pool.AppendCertsFromPEM(ca)
	}
	return &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
}
