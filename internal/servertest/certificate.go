package servertest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// Files that [Certify] writes.
const (
	AuthorityFile = "authority.pem"
	CertFile      = "cert.pem"
	KeyFile       = "key.pem"
)

// Certify writes the certificate of an authority of its own into a folder, and a key for
// the loopback address with a certificate that the authority signed.
func Certify(dir string) error {
	authority, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	root := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority of a test"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "localhost"}, NotBefore: root.NotBefore, NotAfter: root.NotAfter,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	write := func(name, kind string, der []byte, err error) error {
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
	}
	rootDER, err := x509.CreateCertificate(rand.Reader, root, root, authority.Public(), authority)
	err = write(AuthorityFile, "CERTIFICATE", rootDER, err)
	leafDER, failed := x509.CreateCertificate(rand.Reader, leaf, root, key.Public(), authority)
	return errors.Join(err, write(CertFile, "CERTIFICATE", leafDER, failed), write(KeyFile, "PRIVATE KEY", private, nil))
}
