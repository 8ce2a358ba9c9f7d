package daemon

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/daemon/config"
	"github.com/redrive/redrive/internal/wire"
)

// certificates are the files of the listener's TLS. Each handshake looks at them, and reads
// those that changed: what is three system calls there needs no watcher, and sees every way
// of replacing a file. Connections that are open keep what they began with. Nil: plain HTTP.
type certificates struct {
	files config.TLS
	log   *slog.Logger

	mu   sync.Mutex
	seen [3]os.FileInfo // of the files when they were last read; nil: not there
	used *tls.Config
	// authorities are the certificates of client_ca that are in force.
	authorities []*x509.Certificate
	err         error // why newer files are not in force
}

// newCertificates reads the files, or returns nil where there are none.
func newCertificates(files config.TLS, log *slog.Logger) (*certificates, error) {
	if files.IsZero() {
		return nil, nil
	}
	c := &certificates{files: files, log: log}
	c.seen = c.look()
	var err error
	if c.used, err = c.read(); err != nil {
		return nil, &redrive.Error{Op: "listen", Err: fmt.Errorf("tls: %w", err), Hint: "name PEM files that the daemon's user may read; the key must be that of the certificate"}
	}
	return c, nil
}

// config is what a listener takes.
func (c *certificates) config() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return c.current(), nil }}
}

// current is the configuration of the files as they are, or the last one that was whole.
func (c *certificates) current() *tls.Config {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := c.look(); c.err != nil || !same(now, c.seen) { // a file that may be read again need not look changed
		c.seen = now
		next, err := c.read()
		before := c.err
		if c.err = err; err != nil && before != nil && before.Error() == err.Error() {
			return c.used
		} else if err != nil {
			c.log.LogAttrs(context.Background(), slog.LevelError, "certificate reload failed: the previous one stays in force", slog.Any("error", err))
			return c.used
		}
		c.used = next
		c.log.LogAttrs(context.Background(), slog.LevelInfo, "certificate reloaded", slog.Time("ends", next.Certificates[0].Leaf.NotAfter))
	}
	return c.used
}

func (c *certificates) look() (now [3]os.FileInfo) {
	for i, path := range []string{c.files.Cert, c.files.Key, c.files.ClientCA} {
		if info, err := os.Stat(path); err == nil {
			now[i] = info
		}
	}
	return now
}

// same compares by all that a file's replacement can change: a name that leads to another
// file, and a file that was written.
func same(a, b [3]os.FileInfo) bool {
	for i := range a {
		if (a[i] == nil) != (b[i] == nil) {
			return false
		}
		if a[i] != nil && (!os.SameFile(a[i], b[i]) || a[i].Size() != b[i].Size() || !a[i].ModTime().Equal(b[i].ModTime())) {
			return false
		}
	}
	return true
}

// read reads the files. HTTP/2 is left to proxies: the bounds of the API are those of
// connections, of which each carries one request at a time.
func (c *certificates) read() (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(c.files.Cert, c.files.Key)
	if err != nil {
		return nil, err
	}
	next := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}, NextProtos: []string{"http/1.1"}}
	if c.files.ClientCA == "" {
		return next, nil
	}
	text, err := os.ReadFile(c.files.ClientCA)
	if err != nil {
		return nil, err
	}
	next.ClientCAs = x509.NewCertPool()
	if !next.ClientCAs.AppendCertsFromPEM(text) {
		return nil, errors.New("client_ca holds no certificate")
	}
	c.authorities = nil
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if authority, err := x509.ParseCertificate(block.Bytes); err == nil { // the pool leaves out the others too
			c.authorities = append(c.authorities, authority)
		}
	}
	next.ClientAuth = tls.RequireAndVerifyClientCert
	return next, nil
}

// expiresSoon is when a certificate is warned of: with a quarter of its life left, of a long
// one 14 days. What renews certificates does so at a third.
const expiresSoon = 14 * 24 * time.Hour

// ends tells when a certificate ends, and what happens then.
func ends(setting, file, then string, cert *x509.Certificate, now time.Time) wire.Finding {
	at := cert.NotAfter.UTC().Format(time.DateTime) + " UTC"
	f := wire.Finding{Level: driver.LevelOK.String(), Setting: setting, Value: file, Promise: "it ends on " + at}
	switch left := cert.NotAfter.Sub(now); {
	case left <= 0:
		f.Level, f.Promise = driver.LevelRefused.String(), "it ended on "+at+": "+then
		f.Hint = "renew it; new files are taken without a restart"
	case left < min(expiresSoon, cert.NotAfter.Sub(cert.NotBefore)/4):
		f.Level, f.Hint = driver.LevelWarn.String(), "renew it; new files are taken without a restart"
	}
	return f
}

// findings tells how the certificates stand: of the authorities of clients, those that end.
func (c *certificates) findings(now time.Time) []wire.Finding {
	if c == nil {
		return []wire.Finding{}
	}
	used := c.current()
	all := []wire.Finding{ends("tls certificate", c.files.Cert, "clients refuse it", used.Certificates[0].Leaf, now)}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, authority := range c.authorities {
		if f := ends("tls client_ca", c.files.ClientCA, "the certificates of its clients are refused", authority, now); f.Level != driver.LevelOK.String() {
			all = append(all, f)
		}
	}
	if c.err != nil {
		all = append(all, wire.Finding{Level: driver.LevelWarn.String(), Setting: "tls files", Value: "not in force", Promise: c.err.Error() + "; the previous certificate stays", Hint: "mend the files; they are read again when they change"})
	}
	return all
}
