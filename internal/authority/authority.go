// Package authority reads whom a TLS connection is to trust.
package authority

import (
	"crypto/x509"
	"fmt"
	"os"
)

// Read returns the authorities of a file of certificates, which are trusted instead of
// the system's.
func Read(file string) (*x509.CertPool, error) {
	text, err := os.ReadFile(file) //nolint:gosec // the operator names it
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s holds no certificate", file)
	}
	return pool, nil
}
